"""Layers by the modules that they come from: where a node belongs, and the rows of a table folded by them.

The nodes in the bodies of an If, Loop or Scan are below it, as those of a module. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

import onnx

from ...operators.graph import Node
from .content import NodeRecord

MIN_SLOWER_US, MIN_SLOWER_SHARE = 5.0, 0.1
"""Microseconds, and share of its time in float, by which a layer is slower at least to be called so: the
profiler adds some 2 to 4 to each kernel, of which int8 may have one more. What it is off by adds up as the
root of the number of layers (DECISIONS.md, 79)."""

MAX_SINGLE_LAYERS = 4
"""Layers of no module that follow each other and have rows of their own."""

MAX_DEPTH = 24
"""Levels of modules that are looked at; a name may have any number of separators."""

_LEVEL = re.compile(r"[^./]+(?:\.\d+(?![^./]))*")
"""One level of a module's name: a part of it with the numbers after it, as in "layers.0"."""


def module_of(node: Node) -> str:
    """Return the module that a node was exported from, as in "blocks.0.conv", or "".

    It is in the metadata `namespace` (PyTorch 2.5 and later), or is the name of the node up to its last "/"
    or ".".
    """
    scopes = node.ir_node.metadata_props.get("namespace", "")
    if scopes:
        return _joined([scope.partition(": ")[0] for scope in scopes.split("/")[:-1]], ".")
    name = node.name.partition(";")[0]  # converted from TFLite: all operators that were fused
    if "/" in name:
        return _joined(name.split("/")[:-1], "." if name.startswith("/") else "/")
    *modules, last = name.split(".")
    if modules and last[:1].isdigit() and onnx.defs.has(modules[-1]):  # "Conv.12" counts operators
        modules.pop()
    return _joined(modules, ".")


def _joined(scopes: Sequence[str], separator: str) -> str:
    """Return one name of nested scopes, which may repeat the name of the scope around them."""
    name = last = ""
    for scope in filter(None, scopes):
        own = scope[len(last) + 1 :] if last and scope.startswith(f"{last}.") else scope
        name, last = f"{name}{separator}{own}" if name else own, scope
    return name


@dataclass(frozen=True)
class LayerRow:
    """A module with the sums of its layers, or one layer."""

    depth: int  # modules around it that have a row
    label: str  # its name within these
    nodes: tuple[NodeRecord, ...]  # its layers, in graph order
    is_module: bool = False  # whether rows of its layers follow

    def total(self, name: str) -> float | None:
        """Return the sum of a figure of the layers, or None if none has it."""
        known = [value for node in self.nodes if (value := getattr(node, name)) is not None]
        return sum(known) if known else None


def is_slower(before: float | None, after: float | None, layers: int = 1) -> bool:
    """Whether some `layers` that took `before` microseconds in float take more in the quantized model."""
    if before is None or after is None:
        return False
    return after - before >= max(MIN_SLOWER_US * math.sqrt(layers), MIN_SLOWER_SHARE * before)


@dataclass(eq=False)
class _Module:
    """A module of the tree: its layers and modules by name, in the order of the first layer of each."""

    name: str
    children: dict[str, _Module | NodeRecord] = field(default_factory=dict)
    runner: NodeRecord | None = None

    @property
    def scope(self) -> str:
        """The module that the names of its parts begin with."""
        return self.name if self.runner is None else self.runner.module

    @property
    def layers(self) -> tuple[NodeRecord, ...]:
        return tuple(layer for child in self.children.values() for layer in _layers(child))

    @property
    def only(self) -> _Module | NodeRecord | None:
        """Its part where that is but one thing."""
        return next(iter(self.children.values())) if len(self.children) == 1 else None

    def is_frame_of(self, count: int) -> bool:
        """Whether it has most of the layers, and modules inside it have most of its own; no body has."""
        if self.runner is not None:
            return False
        inside = sum(len(child.layers) for child in self.children.values() if isinstance(child, _Module))
        return 2 * len(self.layers) > count and 2 * inside > len(self.layers)


def _layers(child: _Module | NodeRecord) -> tuple[NodeRecord, ...]:
    return child.layers if isinstance(child, _Module) else (child,)


def layer_rows(nodes: Sequence[NodeRecord], shown: Collection[str]) -> list[LayerRow]:
    """Return the rows, each module before its parts, in graph order.

    A module that frames most of the model has no row; one with a single layer is the row of that layer. Nodes
    named in `shown` have a row of their own; the others of a module share its last row.
    """
    root, by_name = _Module(""), {node.name: node for node in nodes}
    runners = {node.run_by for node in nodes}
    for node in nodes:
        here = _body(root, node.name, by_name) if node.name in runners else _place(root, node, by_name)
        here.children[f"\0{node.name}"] = node  # no module has such a name
    children, around = list(root.children.values()), ""
    while frame := next((p for p in children if isinstance(p, _Module) and p.is_frame_of(len(nodes))), None):
        at = children.index(frame)
        if sum(isinstance(child, _Module) for child in children) == 1:
            around = frame.name
        children[at : at + 1] = frame.children.values()
    if not any(isinstance(child, _Module) for child in children):
        return list(_rows(children, around, 0, shown))
    rows = list[LayerRow]()
    for is_module, run in groupby(children, lambda child: isinstance(child, _Module)):
        members = list(run)
        if is_module or len(members) <= MAX_SINGLE_LAYERS:
            rows += _rows(members, around, 0, shown)
        else:
            layers = tuple(layer for child in members for layer in _layers(child))
            label = f"{_own_name(layers[0])} to {_own_name(layers[-1])}"
            rows += [LayerRow(0, label, layers, is_module=True), *_rows(members, around, 1, shown)]
    return rows


def _place(root: _Module, node: NodeRecord, nodes: Mapping[str, NodeRecord]) -> _Module:
    """Return the module or body that a node is in, made with those around it where it is new."""
    here, around = root, ""
    if node.run_by:
        here, around = _body(root, node.run_by, nodes), nodes[node.run_by].module
    for level in islice(_LEVEL.finditer(node.module), MAX_DEPTH):
        name = node.module[: level.end()]
        if name != around and _within(name, around) == around:
            here = _inner(here, name, _Module(name))
    return here


def _body(root: _Module, runner: str, nodes: Mapping[str, NodeRecord]) -> _Module:
    """Return the bodies of a node, made where they are new."""
    node = nodes[runner]
    own = _own_name(node)
    name = f"{node.module}.{own}" if node.module else own
    return _inner(_place(root, node, nodes), f"\0{runner}\0", _Module(name, runner=node))


def _inner(module: _Module, key: str, new: _Module) -> _Module:
    inner = module.children.setdefault(key, new)
    assert isinstance(inner, _Module)
    return inner


def _rows(
    children: Sequence[_Module | NodeRecord], around: str, depth: int, shown: Collection[str]
) -> Iterator[LayerRow]:
    others = []
    for child in children:
        name = child.name if isinstance(child, _Module) else ""
        inner = child
        while isinstance(inner, _Module) and inner.only is not None:
            name, inner = inner.name, inner.only
        if isinstance(inner, _Module):
            yield LayerRow(depth, _within(around, inner.name), inner.layers, is_module=True)
            yield from _rows(list(inner.children.values()), inner.scope, depth + 1, shown)
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
