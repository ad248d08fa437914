"""Glow's tensor names (`node:output`) of an ONNX model, and binding a Glow profile to them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ...profiles.base.errors import ProfileError
from ...profiles.base.names import free_name
from ...profiles.records.profile import FLOAT_DTYPES, Dim, ModelId, Profile, TensorProfile

if TYPE_CHECKING:
    import onnx_ir as ir


# Names -----------------------------------------------------------------------------------------------------


def glow_names(model: ir.Model) -> dict[str, str]:
    """Return Glow's name `node:output` of every tensor of the main graph, in graph order.

    SPEC B.3: a node is called as its operator is, else `<OpType>_<first output>`, else by its type;
    inputs and initialisers by their own names. Characters outside [A-Za-z0-9_] become `_`, a leading
    digit gets an `A`, a name that is taken gets `__1`, `__2`, ... in place of its own such tail. Nodes that
    Glow adds itself (layout transposes and lowered parts, numbered alike) are not considered, and very long
    names, which Glow shortens with a hash, are kept.
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


def bind_glow(profile: Profile, model: ir.Model, model_id: ModelId) -> Profile:
    """Return a Glow profile with the tensor names of `model` for keys, in graph order.

    Only floating-point activations are kept, as in a profile of qprof; dtypes and shapes are the model's.
    `unmatched_glow` returns what is left out.

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
    """Return the activations of `model` without an entry, and the entries without a tensor of the model.

    Entries of the second kind are usual: the nodes that Glow lowers operators to have their own.
    """
    matched = {value.name for value, _ in _matches(profile, model)}
    missing = tuple(value.name or "" for value in _activations(model) if value.name not in matched)
    in_model = set(glow_names(model).values())
    return missing, tuple(name for name in profile if name not in in_model)


def _matches(profile: Profile, model: ir.Model) -> list[tuple[ir.Value, str]]:
    names = glow_names(model)
    in_model = set(names.values())
    pairs = [(value, names[value.name or ""]) for value in _activations(model)]
    return [
        (value, name) for value, name in pairs if name in profile and not _ambiguous(profile, name, in_model)
    ]


def _ambiguous(profile: Profile, name: str, in_model: set[str]) -> bool:
    """Return whether an entry may be of a lowered part of the node instead of its result.

    Glow gives the transposes that it puts around a Conv or a pool the name of the node, the first one
    without a number. The result is certain when there are no such parts, or when one of them has the
    same profile: the copy that lowering makes (SPEC B.4).
    """
    stem, _, output = name.rpartition(":")
    pattern = re.compile(re.escape(stem) + f"__[0-9]+:{output}")
    parts = [other for other in profile if pattern.fullmatch(other) and other not in in_model]
    return bool(parts) and all(profile[part] != profile[name] for part in parts)


def _activations(model: ir.Model) -> list[ir.Value]:
    outputs = [value for node in model.graph for value in node.outputs]
    constants = model.graph.initializers
    values = [*(v for v in model.graph.inputs if v.name not in constants), *outputs]
    return [v for v in values if v.name and v.dtype is not None and v.dtype.name.lower() in FLOAT_DTYPES]


def _bound(profile: TensorProfile, value: ir.Value) -> TensorProfile:
    shape: tuple[Dim, ...] | None = None
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else None for dim in value.shape)
    assert value.dtype is not None  # _activations chose it for its dtype
    return replace(profile, dtype=value.dtype.name.lower(), shape=shape)
