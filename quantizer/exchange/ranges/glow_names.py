"""Glow's tensor names (`node:output`) of an ONNX model (SPEC B.3), and which entries of a file are theirs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ....profiles.base.names import free_name
from ....profiles.records.profile import Profile

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


def matched_glow(profile: Profile, model: ir.Model) -> dict[str, str]:
    """Return Glow's name of each tensor of the model whose entry in a profile is certain.

    Args:
        profile: as read, by Glow's names.
        model: the prepared model.
    """
    names = glow_names(model)
    in_model = set(names.values())
    return {
        tensor: name
        for tensor, name in names.items()
        if name in profile and not _ambiguous(profile, name, in_model)
    }


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
