"""Glow's own profile format (SPEC section C) and Glow's names for the tensors of a model (B.3).

A Glow file is three YAML documents: tool version, hash of the graph, list of entries. The text is spelled as
Glow's writer does it, byte for byte. Only `store` calls the reading and writing here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .errors import ProfileError
from .histogram import EqualBins
from .profile import DataId, Dim, ModelId, Profile, TensorProfile
from .yaml_text import FLOAT, INT, MalformedError, fields, integer_at, list_at, parse_all, real_at

if TYPE_CHECKING:
    import onnx_ir as ir

GlowEntry = tuple[str, EqualBins]
"""Glow's name of a value, with its range and histogram (which may have no bins at all in a file)."""

ADVICE = "check that a Glow of this decade wrote it completely, or profile the model again"

_WRAP_COLUMN = 70
_FLOW_COLUMN = 19
_QUOTED_WORDS = {"null", "Null", "NULL", "~", "true", "True", "TRUE", "false", "False", "FALSE"}
_FLOAT32_MAX = float(np.finfo(np.float32).max)


# The text --------------------------------------------------------------------------------------------------


def is_glow(document: str) -> bool:
    """Return whether a text is a Glow profile rather than one of qprof's."""
    head = document[:10_000]  # its own keys come first
    return re.search("^(GlowToolsVersion|GraphPreLowerHash)[ ]*:", head, re.MULTILINE) is not None


def dumps_glow(entries: Iterable[GlowEntry], graph_hash: int, version: str) -> str:
    """Return the text that Glow writes for these entries, in their order.

    Args:
        entries: names of ASCII characters; ranges and counts are rounded to float32, which Glow holds.
        graph_hash: 64-bit number.
        version: of the writing tool.

    Raises:
        ProfileError: a name or the version holds what Glow cannot have written.
    """
    lines = [
        f"---\nGlowToolsVersion: {_quoted(version)}\n...\n---\nGraphPreLowerHash: 0x{graph_hash:X}\n...\n---"
    ]
    for name, bins in entries:
        lines += [
            f"- NodeOutputName:  {_quoted(name)}",
            f"  Min:             {_fixed(bins.minimum)}",
            f"  Max:             {_fixed(bins.maximum)}",
            f"  Histogram:       {_flow(bins.counts.astype(np.float32).tolist())}",
        ]
    if len(lines) == 1:
        lines.append("[]")
    return "\n".join(lines) + "\n...\n"


def _quoted(text: str) -> str:
    """Return a scalar in the quotes that Glow's YAML writer (LLVM 14) gives it."""
    if not all(" " <= char <= "~" for char in text):
        raise ProfileError(f"'{text}' holds a character that Glow's names cannot; use printable ASCII")
    numeric = INT.fullmatch(text) or FLOAT.fullmatch(text)
    plain = re.fullmatch(r"[A-Za-z0-9_^.][A-Za-z0-9_^., -]*", text) and not text.endswith(" ")
    return (
        text if plain and not numeric and text not in _QUOTED_WORDS else "'" + text.replace("'", "''") + "'"
    )


def _fixed(value: float) -> str:
    clipped = min(max(value, -_FLOAT32_MAX), _FLOAT32_MAX)
    text = f"{float(np.float32(clipped)):.126f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def _flow(counts: Sequence[float]) -> str:
    """Return a flow list, broken after the comma that passes column 70."""
    parts, column = ["[ "], _FLOW_COLUMN + 2
    for index, count in enumerate(counts):
        word = f"{count:g}"
        if index:
            parts.append(", ")
            column += 2
        if column > _WRAP_COLUMN:
            parts.append("\n" + " " * (_FLOW_COLUMN + 2))
            column = _FLOW_COLUMN + 2
        parts.append(word)
        column += len(word)
    return "".join(parts) + " ]"


def loads_glow(document: str) -> tuple[list[GlowEntry], int, str]:
    """Return entries (in the order of the file), graph hash and tool version of a Glow profile.

    Raises:
        MalformedError: by the rules of SPEC C.2; also for a range or a count that is not finite, which Glow
            would take.
    """
    documents = parse_all(_counts_as_text(document))
    if len(documents) != 3:
        raise MalformedError(f"holds {len(documents)} YAML documents; a Glow profile has three", ADVICE)
    version = fields(documents[0], "document 1", ("GlowToolsVersion",))["GlowToolsVersion"]
    if isinstance(version, dict | list):
        raise MalformedError("document 1: GlowToolsVersion must be text", ADVICE)
    where = "document 2: GraphPreLowerHash"
    graph_hash = integer_at(
        fields(documents[1], "document 2", ("GraphPreLowerHash",))["GraphPreLowerHash"], where, 0
    )
    if graph_hash >= 1 << 64:
        raise MalformedError(f"{where} has more than 64 bits", ADVICE)
    items = list_at(documents[2], "document 3")
    return (
        [_entry(item, f"entry {number}") for number, item in enumerate(items, 1)],
        graph_hash,
        str(version or ""),
    )


def _counts_as_text(document: str) -> str:
    """Return the document with its lists of counts quoted: 600 000 YAML scalars would take many seconds."""
    return re.sub(r"^([- ] Histogram:[ ]*)\[([0-9eE+.,\s-]*)\]", r'\1"\2"', document, flags=re.MULTILINE)


def _entry(item: object, where: str) -> GlowEntry:
    found = fields(item, where, ("NodeOutputName", "Min", "Max", "Histogram"))
    name = found["NodeOutputName"]
    if isinstance(name, dict | list) or name is None:
        raise MalformedError(f"{where}: NodeOutputName must be text", ADVICE)
    where = f"tensor '{name}'"
    low = _float32(real_at(found["Min"], f"{where}: Min"), f"{where}: Min")
    high = _float32(real_at(found["Max"], f"{where}: Max"), f"{where}: Max")
    if low > high:
        raise MalformedError(f"{where}: Min {low} is greater than Max {high}", ADVICE)
    listed = found["Histogram"]
    words = (
        listed.replace(",", " ").split()
        if isinstance(listed, str)
        else list_at(listed, f"{where}: Histogram")
    )
    counts = [_count(word, f"{where}: Histogram") for word in words]
    return str(name), EqualBins(low, high, np.array(counts, np.float32))


def _float32(value: float, where: str) -> float:
    if abs(value) > _FLOAT32_MAX:
        raise MalformedError(f"{where} is {value}, beyond float32", ADVICE)
    return float(np.float32(value))


def _count(word: object, where: str) -> float:
    try:
        count = float(word) if isinstance(word, str | int | float) else math.nan
    except (ValueError, OverflowError):
        count = math.nan
    if not 0 <= count <= _FLOAT32_MAX:
        raise MalformedError(f"{where}: '{word}' is not a count", ADVICE)
    return count


# Profiles --------------------------------------------------------------------------------------------------


def loads_profile(document: str) -> Profile:
    """Return a Glow profile with Glow's names as keys and origin "glow"; the first of equal names wins.

    The counts of a tensor are taken as they stand; zeros, NaN and Inf are not known and 0; dtype is
    float; model and data are unknown.

    Raises:
        MalformedError: see `loads_glow`.
    """
    entries, _, version = loads_glow(document)
    tensors: dict[str, TensorProfile] = {}
    for name, bins in entries:
        # An empty histogram is legal in a file, but a histogram has a bin.
        kept = bins if bins.counts.size else replace(bins, counts=np.zeros(1))
        profile = TensorProfile("float", None, kept.minimum, kept.maximum, kept.total, 0, 0, 0, kept)
        tensors.setdefault(name, profile)
    return Profile(ModelId("", "", 0), DataId(), tensors, "glow", version)


def dumps_profile(profile: Profile, names: Mapping[str, str] | None = None) -> str:
    """Return the text of a Glow profile, entries sorted bytewise by name, 2000 equal bins each.

    Glow's hash of the graph cannot be reproduced (SPEC C.3): the first 64 bits of the structure digest stand
    in its place, so Glow's own loader takes the file only with its hash check off.

    Args:
        profile: what to write.
        names: tensor name to Glow's name (`glow_names`); None for a profile that came from Glow.

    Raises:
        ProfileError: a tensor has no Glow name.
    """
    if names is None and profile.origin != "glow":
        raise ProfileError(
            "a profile of qprof needs Glow's names to be written in Glow's format; pass the model"
        )
    entries: list[GlowEntry] = []
    for tensor, found in profile.items():
        name = tensor if names is None else names.get(tensor)
        if name is None:
            raise ProfileError(
                f"tensor '{tensor}' has no Glow name; write the profile with the model it was made of"
            )
        entries.append((name, found.histogram.resampled(found.minimum, found.maximum)))
    head = profile.model.structure[:16]
    graph_hash = int(head, 16) if re.fullmatch("[0-9a-f]{16}", head) else 0
    return dumps_glow(sorted(entries, key=lambda pair: pair[0].encode()), graph_hash, profile.tool)


# Names -----------------------------------------------------------------------------------------------------


def glow_names(model: ir.Model) -> dict[str, str]:
    """Return Glow's name `node:output` of every tensor of the main graph, in graph order.

    SPEC B.3: a node is called as its operator is, else `<OpType>_<first output>`, else by its type;
    inputs and initialisers by their own names. Characters outside [A-Za-z0-9_] become `_`, a leading
    digit gets an `A`, a name that is taken gets `__1`, `__2`, ... in place of its own such tail. What Glow
    adds itself (layout transposes and lowered parts, numbered alike) is not known here, and very long
    names, which Glow cuts with a hash, are kept.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        if value.name and value.name not in names:
            names[value.name] = f"{_unique(value.name, taken)}:0"
    for node in model.graph:
        outputs = [value.name for value in node.outputs]
        title = node.name or (f"{node.op_type}_{outputs[0]}" if outputs and outputs[0] else node.op_type)
        unique = _unique(title, taken)
        names.update({name: f"{unique}:{index}" for index, name in enumerate(outputs) if name})
    return names


def _unique(title: str, taken: set[str]) -> str:
    legal = re.sub("[^A-Za-z0-9_]", "_", title)
    if legal[:1].isdigit():
        legal = "A" + legal
    name, number = legal, 0
    stem = re.sub("__[0-9]+$", "", legal)
    while name in taken:
        number += 1
        name = f"{stem}__{number}"
    taken.add(name)
    return name


def bind_glow(profile: Profile, model: ir.Model, model_id: ModelId) -> Profile:
    """Return a Glow profile with the tensor names of `model` for keys, in graph order.

    Only floating-point activations are kept, as in a profile of qprof; dtypes and shapes are the model's.
    `unmatched_glow` tells what has been left out.

    Args:
        profile: as read, origin "glow".
        model: the prepared model, with dtypes.
        model_id: its identity.

    Raises:
        ProfileError: no entry belongs to an activation of the model.
    """
    tensors = {value.name or "": _bound(profile[name], value) for value, name in _matches(profile, model)}
    if not tensors:
        some = ", ".join(f"'{name}'" for name in list(profile)[:3]) or "none at all"
        raise ProfileError(
            f"Glow profile: no entry belongs to an activation of {model_id.file or 'the model'} "
            f"(entries: {some}); give the profile of this model, or make one with 'qprof dump-profile'"
        )
    return Profile(model_id, profile.data, tensors, "qprof", profile.tool)


def unmatched_glow(profile: Profile, model: ir.Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the activations of `model` without an entry, and the entries that belong to nothing in it.

    Entries of the second kind are usual: the parts that Glow lowers operators to have their own.
    """
    matched = {value.name for value, _ in _matches(profile, model)}
    missing = tuple(value.name or "" for value in _activations(model) if value.name not in matched)
    known = set(glow_names(model).values())
    return missing, tuple(name for name in profile if name not in known)


def _matches(profile: Profile, model: ir.Model) -> list[tuple[ir.Value, str]]:
    names = glow_names(model)
    known = set(names.values())
    found = [(value, names[value.name or ""]) for value in _activations(model)]
    return [
        (value, name) for value, name in found if name in profile and not _ambiguous(profile, name, known)
    ]


def _ambiguous(profile: Profile, name: str, known: set[str]) -> bool:
    """Return whether an entry may be of a part of the node instead of its result.

    Glow gives the transposes that it puts around a Conv or a pool the name of the node, the first one
    without a number. The result is certain when there are no such parts, or when one of them has the very
    same profile: the copy that lowering makes (SPEC B.4).
    """
    stem, _, output = name.rpartition(":")
    pattern = re.compile(re.escape(stem) + f"__[0-9]+:{output}")
    parts = [other for other in profile if pattern.fullmatch(other) and other not in known]
    return bool(parts) and all(profile[part] != profile[name] for part in parts)


def _activations(model: ir.Model) -> list[ir.Value]:
    outputs = [value for node in model.graph for value in node.outputs]
    constants = model.graph.initializers
    values = [*(v for v in model.graph.inputs if v.name not in constants), *outputs]
    return [v for v in values if v.name and v.dtype is not None and v.dtype.is_floating_point()]


def _bound(found: TensorProfile, value: ir.Value) -> TensorProfile:
    shape: tuple[Dim, ...] | None = None
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    assert value.dtype is not None  # _activations chose it for its dtype
    return replace(found, dtype=value.dtype.name.lower(), shape=shape)
