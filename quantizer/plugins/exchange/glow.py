"""Glow's own profile format (SPEC section C).

A Glow file is three YAML documents: tool version, hash of the graph, list of entries. The text is byte for
byte that of Glow's writer. Entries have Glow's names of tensors, `node:output` (SPEC B.3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ....profiles.base.conversion import Count, keys_at, read_value
from ....profiles.base.errors import MalformedError, ProfileError, free_name
from ....profiles.base.output_files import text_of
from ....profiles.base.strict_yaml import FLOAT, INT, parse_all
from ....profiles.records.histogram import UNKNOWN_BINS, EqualBins
from ....profiles.records.profile import Profile
from ...numerics.schemas import FLOAT32_MAX
from .foreign import ForeignRanges

GlowEntry = tuple[str, EqualBins]
"""Glow's name of a value, with its range and histogram (which may have no bins at all in a file)."""

TOOL = "Glow "
"""In the name of the tool, before its version."""

ADVICE = "check that a Glow of this decade wrote it completely, or profile the model again"

_WRAP_COLUMN = 70
"""Glow's writer breaks a list after the comma that passes this column."""

_FLOW_COLUMN = 19
"""Column in which the values of an entry begin."""

_QUOTED_WORDS = {"null", "Null", "NULL", "~", "true", "True", "TRUE", "false", "False", "FALSE"}
"""Names that YAML would read as something else than text."""


def recognises(data: bytes) -> bool:
    """Return whether a file is a Glow profile; its own keys come first."""
    return re.search(b"^(GlowToolsVersion|GraphPreLowerHash)[ ]*:", data[:10_000], re.MULTILINE) is not None


def read(data: bytes, where: str) -> ForeignRanges:
    """Return ranges and histograms by Glow's names; the first of equal names wins."""
    entries, _, version = loads_glow(text_of(data, where, ProfileError))
    by_name: dict[str, EqualBins] = {}
    for name, bins in entries:
        by_name.setdefault(name, bins)
    return ForeignRanges(
        {name: (bins.minimum, bins.maximum) for name, bins in by_name.items()},
        TOOL + (version or "of an unknown version"),
        (),
        {name: bins for name, bins in by_name.items() if bins.counts.size},
    )


def write(profile: Profile, model: ir.Model) -> str:
    """Return the text of a Glow profile, see `dumps_profile`."""
    return dumps_profile(profile, names_in_file(model))


def dumps_profile(profile: Profile, names: Mapping[str, str]) -> str:
    """Return the text of a Glow profile, entries sorted bytewise by name, 2000 equal bins each.

    Glow's hash of the graph cannot be reproduced (SPEC C.3): the first 64 bits of the structure digest
    replace it, so Glow's own loader reads the file only with its hash check off.
    """
    entries: list[GlowEntry] = []
    for tensor, statistics in profile.items():
        if tensor not in names:
            raise ProfileError(
                f"tensor '{tensor}': has no Glow name; write the profile with the model that was profiled"
            )
        bins = EqualBins(statistics.minimum, statistics.maximum, np.zeros(0))
        if statistics.histogram != UNKNOWN_BINS:
            bins = statistics.histogram.resampled(statistics.minimum, statistics.maximum)
        entries.append((names[tensor], bins))
    head = profile.model.structure[:16]
    graph_hash = int(head, 16) if re.fullmatch("[0-9a-f]{16}", head) else 0
    version = profile.tool.removeprefix(TOOL)
    return dumps_glow(sorted(entries, key=lambda pair: pair[0].encode()), graph_hash, version)


# Names ---------------------------------------------------------------------------------------------------


def certain_names(profile: Profile, model: ir.Model) -> dict[str, str]:
    """Return Glow's name of each tensor of the model whose entry in a profile is certain.

    Transposes around a Conv or a pool have the name of the node too. It is certain without such parts, or
    if one of them has the same profile: the copy that lowering makes (SPEC B.4).
    """
    names = names_in_file(model)
    in_model = set(names.values())
    certain = {}
    for tensor, name in names.items():
        if name not in profile:
            continue
        stem, _, output = name.rpartition(":")
        pattern = re.compile(re.escape(stem) + f"__[0-9]+:{output}")
        parts = [other for other in profile if pattern.fullmatch(other) and other not in in_model]
        if not parts or any(profile[part] == profile[name] for part in parts):
            certain[tensor] = name
    return certain


def names_in_file(model: ir.Model) -> dict[str, str]:
    """Return Glow's name `node:output` of every tensor of the main graph, in graph order.

    SPEC B.3: a node has the name of its operator, else `<OpType>_<first output>`, else that of its type;
    inputs and initialisers keep their names. Characters outside [A-Za-z0-9_] become `_`, a leading digit gets
    an `A`, a name that is taken gets `__1`, `__2`, ..., which replaces a suffix of this form. Nodes that Glow
    adds itself (layout transposes and lowered parts, numbered alike) are not considered, and very long names,
    which Glow shortens with a hash, are kept.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        if value.name and value.name not in names:
            names[value.name] = f"{_glow_name(value.name, taken)}:0"
    for node in model.graph:
        outputs = [value.name for value in node.outputs]
        title = node.name or (f"{node.op_type}_{outputs[0]}" if outputs and outputs[0] else node.op_type)
        unique = _glow_name(title, taken)
        names.update({name: f"{unique}:{index}" for index, name in enumerate(outputs) if name})
    return names


def _glow_name(title: str, taken: set[str]) -> str:
    legal = re.sub("[^A-Za-z0-9_]", "_", title)
    if legal[:1].isdigit():
        legal = "A" + legal
    stem = re.sub("__[0-9]+$", "", legal)
    name = free_name(legal, taken, lambda number: f"{stem}__{number}")
    taken.add(name)
    return name


# The text ------------------------------------------------------------------------------------------------


def loads_glow(document: str) -> tuple[list[GlowEntry], int, str]:
    """Return entries (in the order of the file), graph hash and tool version of a Glow profile."""
    # Lists of counts become text first: 600 000 YAML scalars would take many seconds.
    quoted = re.sub(r"^([- ] Histogram:[ ]*)\[([0-9eE+.,\s-]*)\]", r'\1"\2"', document, flags=re.MULTILINE)
    documents = parse_all(quoted)
    if len(documents) != 3:
        raise MalformedError(f"contains {len(documents)} YAML documents; a Glow profile has three", ADVICE)
    version = keys_at(documents[0], "document 1", ("GlowToolsVersion",))["GlowToolsVersion"]
    if isinstance(version, dict | list):
        raise MalformedError("document 1: GlowToolsVersion must be text", ADVICE)
    where = "document 2: GraphPreLowerHash"
    written = keys_at(documents[1], "document 2", ("GraphPreLowerHash",))["GraphPreLowerHash"]
    graph_hash: int = read_value(written, Count, where)
    if graph_hash >= 1 << 64:
        raise MalformedError(f"{where} has more than 64 bits", ADVICE)
    items = read_value(documents[2], list[object], "document 3")
    return (
        [_entry(item, f"entry {number}") for number, item in enumerate(items, 1)],
        graph_hash,
        str(version or ""),
    )


def _entry(item: object, where: str) -> GlowEntry:
    entry = keys_at(item, where, ("NodeOutputName", "Min", "Max", "Histogram"))
    name = entry["NodeOutputName"]
    if isinstance(name, dict | list) or name is None:
        raise MalformedError(f"{where}: NodeOutputName must be text", ADVICE)
    where = f"tensor '{name}'"
    low = _float32(read_value(entry["Min"], float, f"{where}: Min"), f"{where}: Min")
    high = _float32(read_value(entry["Max"], float, f"{where}: Max"), f"{where}: Max")
    if low > high:
        raise MalformedError(f"{where}: Min {low} is greater than Max {high}", ADVICE)
    listed = entry["Histogram"]
    words = (
        listed.replace(",", " ").split()
        if isinstance(listed, str)
        else read_value(listed, list[object], f"{where}: Histogram")
    )
    counts = [_count(word, f"{where}: Histogram") for word in words]
    return str(name), EqualBins(low, high, np.array(counts, np.float32))


def _float32(value: float, where: str) -> float:
    if abs(value) > FLOAT32_MAX:
        raise MalformedError(f"{where} is {value}, beyond float32", ADVICE)
    return float(np.float32(value))


def _count(word: object, where: str) -> float:
    try:
        count = float(word) if isinstance(word, str | int | float) else math.nan
    except (ValueError, OverflowError):
        count = math.nan
    if not 0 <= count <= FLOAT32_MAX:
        raise MalformedError(f"{where}: '{word}' is not a count", ADVICE)
    return count


def dumps_glow(entries: Iterable[GlowEntry], graph_hash: int, version: str) -> str:
    """Return the text that Glow writes for these entries, in float32, with a graph hash of 64 bits."""
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
        raise ProfileError(
            f"name '{text}': contains a character that Glow does not allow; use printable ASCII"
        )
    numeric = INT.fullmatch(text) or FLOAT.fullmatch(text)
    plain = re.fullmatch(r"[A-Za-z0-9_^.][A-Za-z0-9_^., -]*", text) and not text.endswith(" ")
    return (
        text if plain and not numeric and text not in _QUOTED_WORDS else "'" + text.replace("'", "''") + "'"
    )


def _fixed(value: float) -> str:
    clipped = min(max(value, -FLOAT32_MAX), FLOAT32_MAX)
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
