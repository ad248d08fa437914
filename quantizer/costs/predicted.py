"""The predicted time of each node, in float and as planned, from a table of measured kernels. Pure.

A node's time is that of its kernel at its sizes. A change of layout is charged to the tensor if it is
converted anyway, else to the node that makes it (for a graph input: the node that reads it). A node that is
fused into another costs nothing or its additional time. An operator that is not in the table costs
`DEFAULT_KERNEL` for each element.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Profile
from ..model.graph import subgraphs
from ..operators.facts import KernelSizes
from ..operators.graph import Graph, Node
from ..operators.table import CONVERSIONS, DEQUANTIZE, PRODUCTS, QUANTIZE, is_clip
from ..plan.channel_groups import ChannelGroup, channel_groups
from ..plan.plan import Implementation, Kind, NodePlan, QuantPlan
from ..plan.rewrites import WIDTHS, float_rewrites
from ..targets.cost_table import CostTable
from ..targets.forms import FORMS
from .kernels import (
    Fusion,
    Sizes,
    Work,
    attention_work,
    filled_up,
    fused_nodes,
    fused_work,
    has_known_weights,
    work_of,
)
from .layouts import UNKNOWN, Layouts, is_convolution, layouts_of
from .shapes import Shape, padded_shapes, runs_of, shapes_of
from .spellings import SPELLINGS, has_own_price, pieces_of


@dataclass(frozen=True)
class Costs:
    """Microseconds of one run."""

    integer: Mapping[str, float]  # by node, in the quantized model; of nodes that stay float there too
    floating: Mapping[str, float]  # by node, in the float model
    border: Mapping[str, float]  # by tensor, of quantizing or dequantizing it, change of layout included
    unfused: tuple[str, ...] = ()  # quantized nodes that onnxruntime computes in float nevertheless
    # nodes that are one kernel in float: `floating` holds if all of them are float
    together: tuple[tuple[str, ...], ...] = ()
    run: float = 0.0  # besides its nodes, in either model
    layouts: Layouts = UNKNOWN  # of the quantized model


def is_quantized(name: str, plan: QuantPlan) -> bool:
    """Return whether a node computes on quantized values."""
    entry = plan.nodes.get(name)
    return entry is not None and entry.kind.counts_as_quantized


DEFAULT_KERNEL = "Neg"
"""The kernel that stands for operators that were not measured: one pass over the elements."""

NODES_PER_PASS = tuned(
    2.0, figure="measured 1.8 to 2.7 (DECISIONS.md, 29)", chosen_on="loops", holds=(1.6, 2.5)
)
"""Nodes on a single element that take as long as a run of an inner graph, such as a pass of a Loop."""


MIN_SAVED_US = tuned(
    2.0, figure="predicted times of small nodes are wrong by as much", chosen_on="by hand", holds=(1.6, 2.5)
)
"""Microseconds that another way of writing a node has to save."""


MIN_MOVED_DIMENSIONS = 2
"""Dimensions above 1, besides the batch, of a tensor whose layout matters."""


def _repeats_elements(node: Node, graph: Graph) -> bool:
    """Whether a Resize is by whole factors of known sizes: then it is written as rows that are looked up."""
    sides = [(graph.shape(name) or ())[2:] for name in (node.input(0), node.output)]
    known = len(sides[0]) == len(sides[1]) > 0 and None not in (*sides[0], *sides[1])
    return known and all(out % max(one or 1, 1) == 0 for one, out in zip(*sides, strict=True) if out)


def is_spelled(node: Node, entry: NodePlan) -> bool:
    """Whether a node that computes in float does not take the time of its operator."""
    is_table = node.rule is not None and node.rule.is_lookup and entry.kind is Kind.WEIGHT_ONLY
    return has_own_price(entry.implementation) or (is_table and entry.implementation in SPELLINGS)


@dataclass(frozen=True, eq=False)
class CostModel:
    """The kernel times and sizes of a model, which price any plan of it."""

    graph: Graph
    profile: Profile
    table: CostTable
    # of its tensors in one run; None for what follows from the profile
    shapes: Mapping[str, Shape] | None = None
    spellings: tuple[str, ...] = ()  # ways of writing nodes that the runtime gains by and the form has
    folds: bool = False  # the width of quantized convolutions may be folded into channels
    _folds: dict[tuple[str, Shape, Shape], tuple[int, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def sizes(self) -> Sizes:
        """The shapes of its tensors in one run."""
        shapes = shapes_of(self.graph, self.profile) if self.shapes is None else self.shapes
        return Sizes(self.graph, shapes)

    @cached_property
    def runs(self) -> Mapping[str, float]:
        """How often the tensors of inner graphs are computed in one run."""
        return runs_of(self.graph, self.profile)

    @cached_property
    def starts(self) -> Mapping[str, float]:
        """Microseconds that starting the runs of its inner graphs takes a node, by its name."""
        one_start = NODES_PER_PASS * self._kernel_time(f"{DEFAULT_KERNEL}:float", 1.0)
        starts = {}
        for node in self.graph.nodes:
            bodies = list(subgraphs(node.ir_node))
            if bodies:
                passes = (self.runs.get(str(body[0].outputs[0].name), 1.0) for body in bodies if len(body))
                starts[node.name] = one_start * sum(passes)
        return starts

    @cached_property
    def fused(self) -> Mapping[str, Fusion]:
        """The float nodes that are parts of others."""
        return fused_nodes(self.graph, self.sizes)

    def on(self, table: CostTable, profile: Profile) -> CostModel:
        """Return it with the times of another table, of runs as a profile has them."""
        return replace(self, table=table, profile=profile, shapes=None, _folds={})

    @property
    def run_time(self) -> float:
        """Microseconds of a run besides its nodes."""
        return self.table.microseconds("Run", (1.0,)) or 0.0

    @property
    def float_time_of_run(self) -> float:
        """Microseconds of a run of the float model."""
        return sum(self.floating.values()) + self.run_time

    @cached_property
    def floating(self) -> dict[str, float]:
        """Microseconds of each node in the float model."""
        fused = self.fused
        layouts = layouts_of(self.graph, self.sizes, (), fused)
        times = {
            node.name: self.float_time(node, layouts, fused) * self.runs.get(node.output, 1.0)
            + self.starts.get(node.name, 0.0)
            for node in self.graph.nodes
        }
        for tensor, kernel, reader in layouts.changes:
            self._charge(times, tensor, reader, self.change_time(tensor, kernel))
        return times

    def sizes_of(self, plan: QuantPlan) -> Sizes:
        """Return the shapes in the written model, with the padded channels of a plan."""
        wanted = plan.adjustments.padded_channels
        if not wanted:
            return self.sizes
        groups = channel_groups(self.graph, plan)
        padded = {group: wanted[group.tensors[0]] for group in groups if group.tensors[0] in wanted}
        shapes = self.sizes.shapes
        return Sizes(self.graph, {**shapes, **padded_shapes(shapes, self.graph, padded)})

    def part(self, graph: Graph) -> CostModel:
        """Return the model of a part of its graph, in which a node costs what it costs in the whole."""
        part = copy(self)
        object.__setattr__(part, "graph", graph)
        return part

    def costs(self, plan: QuantPlan, before: Layouts = UNKNOWN) -> Costs:
        """Return the times of the nodes in float and as planned; `border` is of every float activation."""
        quantized, written_apart = set[str](), set[str]()
        for name, entry in plan.nodes.items():
            if entry.kind.reads_quantized:
                quantized.add(name)
            if entry.kind is Kind.FLOAT and entry.implementation not in ("", Implementation.FUSED):
                written_apart.add(name)
        unfusable = quantized | written_apart
        own = {node.name: fusion for node in self.graph.nodes if (fusion := self.fused.get(node.name))}
        fused = {name: fusion for name, fusion in own.items() if unfusable.isdisjoint(fusion[1])}
        layouts = layouts_of(self.graph, self.sizes, quantized, fused, before)
        sizes = self.sizes_of(plan)
        times: dict[str, float] = {}
        for node in self.graph.nodes:
            planned = plan.nodes.get(node.name)
            if planned is not None and planned.kind.counts_as_quantized:
                time = self.integer_time(node, planned, plan, layouts, sizes)
            elif planned is not None and is_spelled(node, planned):
                time = self.spelled_time(node, planned.implementation)
            else:
                time = self.float_time(node, layouts, fused)
            times[node.name] = time * self.runs.get(node.output, 1.0) + self.starts.get(node.name, 0.0)
        conversions = conversions_of(self.graph, plan)
        border = self._border(conversions)
        for tensor, kernel, reader in layouts.changes:
            time = self.change_time(tensor, kernel)
            if conversions.get(tensor):
                border[tensor] += time * self.runs.get(tensor, 1.0)
            else:
                self._charge(times, tensor, reader, time)
        groups = tuple(dict.fromkeys(parts for kernel, parts in own.values() if kernel == ""))
        return Costs(times, self.floating, border, (), groups, self.run_time, layouts)

    def float_time(self, node: Node, layouts: Layouts, fused: Mapping[str, Fusion]) -> float:
        """Return the microseconds of a node in float, in a model with these layouts and fusions."""
        kernel = fused[node.name][0] if node.name in fused else None
        if kernel == "" or node.name in layouts.absorbed:
            return 0.0
        blocked = node.input(0) in layouts.blocked
        if kernel is not None and kernel.endswith(":fused"):
            work = fused_work(node, kernel, self.sizes)
            maker = self.graph.producer(node.input(0))
            if blocked:
                work = self._filled_up(work, node.output)
            elif maker is not None and has_known_weights(maker, self.sizes):
                return 0.0  # of sequences and unaligned channels it is not counted: 2 us of 8,192 elements
            return self.table.microseconds(f"{kernel}:float", work.sizes) or 0.0
        if kernel is not None:
            return self.time_of(fused_work(node, kernel, self.sizes), "float", blocked)
        if node.facts.kernel is KernelSizes.ATTENTION:
            parts = attention_work(node, self.sizes)
            return sum(self.time_of(part, "float", in_layout=False) for part in parts)
        work = self.sizes.float_work(node)
        if node.output in layouts.blocked and not is_convolution(node):
            work = self._filled_up(work, node.output)
        return self.time_of(work, "float", blocked) + self._reading_weights(node, work, "float")

    def _filled_up(self, work: Work, tensor: str) -> Work:
        """Return a work on blocks of channels, which are computed whole."""
        return replace(work, sizes=(*work.sizes[:-1], work.sizes[-1] * self._share_of_blocks(tensor)))

    def _share_of_blocks(self, tensor: str) -> float:
        """Return the channels that the blocks of a tensor have for each real one."""
        channels = (self.sizes.shape(tensor)[1:2] or (0,))[0]
        return filled_up(channels) / channels if channels else 1.0

    def integer_time(
        self,
        node: Node,
        entry: NodePlan,
        plan: QuantPlan | None = None,
        layouts: Layouts | None = None,
        sizes: Sizes | None = None,
    ) -> float:
        """Return the microseconds of a node that computes on integers, with the plan's fold of its width.

        Without a plan the output is quantized and no clip is free; without layouts pools have the channels
        last; `sizes` are `sizes_of` the plan.
        """
        if plan is not None and changes_nothing(node, plan, self.graph):
            return 0.0
        if layouts is not None and node.name in layouts.absorbed:
            return 0.0
        last = layouts is None or node.input(0) in layouts.last
        # A node that reads integers and is computed on them has its own kernel: no table is looked up.
        if entry.implementation in SPELLINGS and entry.implementation != Implementation.INTEGER:
            return self.spelled_time(node, entry.implementation, sizes or self.sizes, in_layout=last)
        fold = None if plan is None else plan.adjustments.folded_widths.get(node.name)
        if fold is not None:
            folded: float = WIDTHS.load().folded_time(self, node, fold, sizes or self.sizes)
            return folded
        work = work_of(node, sizes or self.sizes, integer=True)
        if node.facts.kernel is KernelSizes.RESIZE and not _repeats_elements(node, self.graph):
            work = replace(work, kernel=f"{work.kernel}:direct")
        form = "integer"
        if entry.kind is Kind.DYNAMIC:
            form = "dynamic"
        elif plan is not None and node.output not in plan.tensors:
            form = "to-float"
        return self.time_of(work, form, last) + self._reading_weights(node, work, "integer")

    def fold_of(self, node: Node, entry: NodePlan, sizes: Sizes) -> tuple[int, float]:
        """Return the best number of result columns to compute together (0: none), and microseconds saved."""
        if not self.folds or entry.kind is not Kind.QUANTIZED or not WIDTHS.is_installed:
            return 0, 0.0
        key = node.name, sizes.input(node, 1), sizes.input(node)
        if key not in self._folds:
            self._folds[key] = WIDTHS.load().best_fold(self, node, entry, sizes)
        return self._folds[key]

    def spelled_time(
        self, node: Node, name: str, sizes: Sizes | None = None, *, in_layout: bool = False
    ) -> float:
        """Return the microseconds of a node in an implementation: of the kernels that it consists of."""
        pieces = pieces_of(name, node, sizes or self.sizes)
        return sum(self.time_of(work, form, in_layout) for work, form in pieces)

    def float_spelling(self, node: Node, names: Collection[str]) -> str:
        """Return the rewrite among `names` that costs less than the float operator, or ""."""
        if node.name in self.fused:
            return ""
        fitting = [name for name in names if float_rewrites()[name].fits(node, self.graph)]
        if not fitting:
            return ""
        usual = self.time_of(self.sizes.float_work(node), "float", in_layout=False)
        times = {"": usual} | {name: self.spelled_time(node, name) for name in fitting}
        return min(times, key=lambda name: times[name])

    def change_time(self, tensor: str, kernel: str) -> float:
        """Return the microseconds of changing the layout of a tensor."""
        shape = self.sizes.shape(tensor)
        if sum(dim > 1 for dim in shape[1:]) < MIN_MOVED_DIMENSIONS and kernel == "Layout":
            return self._kernel_time("Reshape:float", 1.0)  # no element moves
        size = float(max(self.sizes.elements(tensor), 1))
        if kernel == "Layout":
            return self.table.microseconds("Layout:integer", (size,)) or 0.0
        return self.table.microseconds(f"{kernel}:float", (size * self._share_of_blocks(tensor),)) or 0.0

    def conversion_time(self, tensor: str, kernel: str) -> float:
        """Return the microseconds of QuantizeLinear or DequantizeLinear on a tensor."""
        return self._kernel_time(f"{kernel}:integer", float(max(self.sizes.elements(tensor), 1)))

    def _kernel_time(self, kernel: str, size: float) -> float:
        """Return the microseconds of a kernel whose time depends on one size."""
        return self.table.microseconds(kernel, (size,)) or 0.0

    @cached_property
    def _weight_megabytes(self) -> float:
        """Megabytes of the model's weights in float."""
        products = [node for node in self.graph.nodes if node.op_type in PRODUCTS]
        return sum(self._weight_elements(node) for node in products) * 4e-6

    def _weight_elements(self, node: Node) -> int:
        name = node.input(1)
        return self.sizes.elements(name) if self.graph.is_constant(name) else 0

    def _reading_weights(self, node: Node, work: Work, form: str) -> float:
        """Return the microseconds that reading the weight of a product takes longer than from a cache."""
        elements = self._weight_elements(node) if node.op_type in PRODUCTS else 0
        if not elements or self.table.guesses:  # it is no kernel
            return 0.0
        share = 1.0 if form == "float" else 0.25
        kernel = "Weights:float" if form == "float" else "Weights:integer"
        rate = self.table.microseconds(kernel, (work.sizes[-1], self._weight_megabytes * share)) or 0.0
        return rate * elements * 4e-6 * share

    def time_of(self, work: Work, form: str, in_layout: bool) -> float:
        """Return the time of a work, by the fittest kernel of the table.

        Its name has all words or fewer, it is in its layout or not, and of its form, of integers or of float.
        """
        words = work.kernel.split(":")
        for kernel in (":".join(words[:count]) for count in range(len(words), 0, -1)):
            for name in (f"{kernel}:blocked", kernel) if in_layout else (kernel,):
                for word in dict.fromkeys((form, "integer" if form != "float" else form, "float")):
                    points = self.table.kernels.get(f"{name}:{word}")
                    known = len(points[0]) - 1 if points else 0
                    if known in (1, len(work.sizes)):  # of a kernel that depends on more it has the elements
                        last = work.channels_last if in_layout and word != "float" else ()
                        read = self.table.microseconds if work.is_measured else self.table.guess
                        return work.repeats * (read(f"{name}:{word}", (last or work.sizes)[-known:]) or 0.0)
        return work.repeats * self.table.guess(f"{DEFAULT_KERNEL}:float", (work.sizes[-1],))

    def _border(self, conversions: Mapping[str, str]) -> dict[str, float]:
        """Return the microseconds of converting each float activation, and its layout if that changes too."""
        border = {}
        for name, kernel in conversions.items():
            if kernel:
                time = self.conversion_time(name, kernel)
            else:
                maker, readers = self.graph.producer(name), self.graph.consumers(name)
                is_made = maker is not None and is_convolution(maker)
                is_read = any(is_convolution(reader) for reader, _ in readers)
                layout = self.change_time(name, "Layout") if is_made or is_read else 0.0
                layout += self.change_time(name, "ReorderInput") if is_made and is_read else 0.0
                time = max(self.conversion_time(name, kernel) for kernel in CONVERSIONS) + layout
            border[name] = time * self.runs.get(name, 1.0)
        return border

    def _charge(self, times: dict[str, float], tensor: str, reader: str, time: float) -> None:
        """Add the time of a change of layout to the node that makes a tensor, else to its reader."""
        owner = self.graph.maker(tensor) or reader
        if owner:
            times[owner] = times.get(owner, 0.0) + time * self.runs.get(tensor, 1.0)


def conversion_of(name: str, graph: Graph, plan: QuantPlan) -> str:
    """Return the operator that converts an activation in a plan, or ""."""
    readers = {reads_quantized(node, plan) for node, position in graph.consumers(name) if position >= 0}
    if graph.is_result(name):
        readers.add(False)
    maker = graph.producer(name)
    stored = maker is not None and reads_quantized(maker, plan) and name in plan.tensors
    if stored:
        return DEQUANTIZE if False in readers else ""
    return QUANTIZE if True in readers else ""


def reads_quantized(node: Node, plan: QuantPlan) -> bool:
    """Whether a node of a plan reads quantized activations."""
    entry = plan.nodes.get(node.name)
    return entry is not None and entry.kind.reads_quantized


def conversions_of(graph: Graph, plan: QuantPlan) -> dict[str, str]:
    """Return `conversion_of` each float activation, by name."""
    names = (n for n in graph.values if not graph.is_constant(n) and graph.is_float(n))
    return {name: conversion_of(name, graph, plan) for name in names}


def total_microseconds(costs: Costs, graph: Graph, plan: QuantPlan) -> float:
    """Return the predicted time of the planned model: its nodes, its conversions, and the run besides."""
    converted = (costs.border[name] for name, kernel in conversions_of(graph, plan).items() if kernel)
    return costs.run + sum(costs.integer.values()) + sum(converted)


def changes_nothing(node: Node, plan: QuantPlan, graph: Graph) -> bool:
    """Whether a clip lets every value pass that its quantized input can stand for: it is left out."""
    rule, params = node.rule, plan.tensors.get(node.output)
    if rule is None or not is_clip(node) or rule.effective_range is None:
        return False
    if params is None or params.axis is not None or params != plan.tensors.get(node.input(0)):
        return False
    low, high = rule.effective_range(node, graph)
    slack = 1e-3 * (high - low) if math.isfinite(high - low) else 0.0  # what rounding may move the ends
    lowest, highest = params.tensor_ends
    return low - slack <= lowest and highest <= high + slack


# Channels that integer convolutions compute faster with --------------------------------------------------


def find_padding(model: CostModel, plan: QuantPlan) -> dict[str, int]:
    """Return the channels of the activations that are faster with more, by name in graph order.

    onnxruntime's integer convolutions are fast for whole blocks of channels (`kernels.BLOCK`): a depthwise
    one of 72 channels takes 2.5 times as long as one of 80. Every group that fills no whole block is padded
    first; then each goes back, in graph order, if that costs no time.
    """
    if not FORMS[plan.config.form].kernels_on_codes:
        return {}

    def time_around(group: ChannelGroup, shapes: Mapping[str, Shape]) -> float:
        """Return the microseconds of the nodes around a group."""
        sizes = Sizes(model.graph, shapes)
        nodes = ((model.graph.node(name), plan.nodes[name]) for name in group.nodes)
        return sum(
            model.integer_time(node, entry, plan, sizes=sizes) - model.fold_of(node, entry, sizes)[1]
            for node, entry in nodes
        )

    groups = channel_groups(model.graph, plan)
    padded = {group: size for group in groups if (size := filled_up(group.channels)) != group.channels}
    shapes = {**model.sizes.shapes, **padded_shapes(model.sizes.shapes, model.graph, padded)}
    for group in list(padded):
        own = padded_shapes(shapes, model.graph, {group: group.channels})
        if time_around(group, ChainMap(own, shapes)) <= time_around(group, shapes):
            shapes |= own
            del padded[group]
    return {name: size for group, size in padded.items() for name in group.tensors}


def find_folds(model: CostModel, plan: QuantPlan) -> dict[str, int]:
    """Return the convolutions that are faster with their width folded, with the columns computed together."""
    sizes = model.sizes_of(plan)
    folds = {node.name: model.fold_of(node, plan.nodes[node.name], sizes)[0] for node in model.graph.nodes}
    return {name: fold for name, fold in folds.items() if fold}
