"""Layers by the modules that they come from: where a node belongs, and the rows of a table folded by them.

Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

import onnx

from ..operators.graph import Node
from .content import NodeRecord

LEAST_US, LEAST_SHARE = 5.0, 0.1
"""Microseconds, and share of its time in float, by which a layer is slower at least to be called so: the
profiler adds some 2 to 4 to each kernel, of which int8 may have one more. What it is off by adds up as the
root of the number of layers (DECISIONS.md, 79)."""

FEW = 4
"""Layers of no module that follow each other and have rows of their own."""

DEEPEST = 24
"""Levels of modules that are looked at; a name may have any number of separators."""

_LEVEL = re.compile(r"[^./]+(?:\.\d+(?![^./]))*")
"""One level of a module's name: a part of it with the numbers after it, as in "layers.0"."""


def module_of(node: Node) -> str:
    """Return the module that a node was exported from, as in "blocks.0.conv"; "" where nothing tells.

    `namespace` in the metadata of a node has the modules around it with their classes, the operator last
    (PyTorch 2.5 and later: "layers.0: Block/layers.0.conv: torch.nn.Conv2d/conv2d: aten.conv2d"). Elsewhere
    it is the name of the node up to its last "/", or "." where it has no "/": PyTorch's older exporter and
    those of TensorFlow and JAX name nodes so.
    """
    scopes = node.ir_node.metadata_props.get("namespace", "")
    if scopes:
        return _joined([scope.partition(": ")[0] for scope in scopes.split("/")[:-1]], ".")
    name = node.name.partition(";")[0]  # converted from TFLite: all operators that were fused
    if "/" in name:
        return _joined(name.split("/")[:-1], "." if name.startswith("/") else "/")
    *parts, last = name.split(".")
    if parts and last[:1].isdigit() and onnx.defs.has(parts[-1]):  # "Conv.12" counts operators
        parts.pop()
    return _joined(parts, ".")


def _joined(scopes: Sequence[str], separator: str) -> str:
    """Return one name of nested scopes, of which one may repeat the name of that around it."""
    found = last = ""
    for scope in filter(None, scopes):
        own = scope[len(last) + 1 :] if last and scope.startswith(f"{last}.") else scope
        found, last = f"{found}{separator}{own}" if found else own, scope
    return found


@dataclass(frozen=True)
class LayerRow:
    """A module with the sums of its layers, or one layer.

    Attributes:
        depth: modules around it that have a row.
        label: its name within these.
        nodes: its layers, in graph order.
        is_module: whether rows of its layers follow.
    """

    depth: int
    label: str
    nodes: tuple[NodeRecord, ...]
    is_module: bool = False

    def total(self, name: str) -> float | None:
        """Return the sum of a figure of the layers; None where none of them has it."""
        known = [value for node in self.nodes if (value := getattr(node, name)) is not None]
        return sum(known) if known else None


def is_slower(before: float | None, after: float | None, layers: int = 1) -> bool:
    """Whether so many layers that took `before` microseconds in float take more in the quantized model.

    What is computed as part of another layer in one of the two, and has no time, cannot be compared.
    """
    if before is None or after is None:
        return False
    return after - before >= max(LEAST_US * math.sqrt(layers), LEAST_SHARE * before)


@dataclass(eq=False)
class _Module:
    """A module of the tree: its layers and modules by name, in the order of the first layer of each."""

    name: str
    parts: dict[str, _Module | NodeRecord] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[NodeRecord, ...]:
        return tuple(layer for part in self.parts.values() for layer in _layers(part))

    @property
    def only(self) -> _Module | NodeRecord | None:
        """What it has where that is but one thing."""
        return next(iter(self.parts.values())) if len(self.parts) == 1 else None

    def is_frame_of(self, count: int) -> bool:
        """Whether it has most of so many layers, and modules inside it have most of its own."""
        inside = sum(len(part.layers) for part in self.parts.values() if isinstance(part, _Module))
        return 2 * len(self.layers) > count and 2 * inside > len(self.layers)


def _layers(part: _Module | NodeRecord) -> tuple[NodeRecord, ...]:
    return part.layers if isinstance(part, _Module) else (part,)


def layer_rows(nodes: Sequence[NodeRecord], shown: Collection[str]) -> list[LayerRow]:
    """Return the rows, each module before what it has, in graph order.

    A module that frames most of the model has no row, its parts take its place; one with a single layer is
    the row of that layer. Layers of no module are one row where many follow each other between modules.

    Args:
        nodes: in graph order.
        shown: names of those with a row of their own; the others of a module share its last row.
    """
    root = _Module("")
    for node in nodes:
        here = root
        for level in islice(_LEVEL.finditer(node.module), DEEPEST):
            name = node.module[: level.end()]
            inner = here.parts.setdefault(name, _Module(name))
            assert isinstance(inner, _Module)
            here = inner
        here.parts[f"\0{node.name}"] = node  # no module has such a name
    parts, around = list(root.parts.values()), ""
    while frame := next((p for p in parts if isinstance(p, _Module) and p.is_frame_of(len(nodes))), None):
        at = parts.index(frame)
        if sum(isinstance(part, _Module) for part in parts) == 1:
            around = frame.name
        parts[at : at + 1] = frame.parts.values()
    if not any(isinstance(part, _Module) for part in parts):
        return list(_rows(parts, around, 0, shown))
    rows = list[LayerRow]()
    for is_module, run in groupby(parts, lambda part: isinstance(part, _Module)):
        found = list(run)
        if is_module or len(found) <= FEW:
            rows += _rows(found, around, 0, shown)
        else:
            layers = tuple(layer for part in found for layer in _layers(part))
            label = f"{_own_name(layers[0])} to {_own_name(layers[-1])}"
            rows += [LayerRow(0, label, layers, is_module=True), *_rows(found, around, 1, shown)]
    return rows


def _rows(
    parts: Sequence[_Module | NodeRecord], around: str, depth: int, shown: Collection[str]
) -> Iterator[LayerRow]:
    others = []
    for part in parts:
        name = part.name if isinstance(part, _Module) else ""
        inner = part
        while isinstance(inner, _Module) and inner.only is not None:
            name, inner = inner.name, inner.only
        if isinstance(inner, _Module):
            yield LayerRow(depth, _within(around, inner.name), inner.layers, is_module=True)
            yield from _rows(list(inner.parts.values()), inner.name, depth + 1, shown)
        elif inner.name in shown:
            yield LayerRow(depth, _within(around, name) or _own_name(inner), (inner,))
        else:
            others.append(inner)
    if others:
        yield LayerRow(depth, "others", tuple(others))


def _own_name(node: NodeRecord) -> str:
    """Return the name of a layer without that of its module."""
    return _within(node.module, node.name.partition(";")[0].rpartition("/")[2])


def _within(around: str, name: str) -> str:
    """Return a name without that of the module around it."""
    inside = len(name) > len(around) > 0 and name.startswith(around) and name[len(around)] in "./"
    return name[len(around) + 1 :] if inside else name
