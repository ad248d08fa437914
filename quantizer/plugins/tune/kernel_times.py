"""A table of measured costs: small networks are run in float and quantized, and their nodes timed.

The quantized form is the target's own: the lowering writes a plan that quantizes everything for which the
target has a kernel, all activations with the same parameters. So a kernel's time includes its implementation
and onnxruntime's optimizations.

Chains of nodes give the times of most kernels (`kernel_times`). The profiler divides the time of a chain
among its nodes; its overhead is larger than a small node, and it counts whole microseconds. So the total time
comes from the clock, in runs without the profiler (`by_clock`). Products with packed weights, recurrent
operators and the fixed cost of a run have separate networks and clocks.
"""

from __future__ import annotations

import itertools
import math
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto

from ....profiles.base.errors import ConfigError
from ....profiles.base.output_files import temporary_folder
from ....profiles.base.tool import Progress
from ....profiles.records.profile import ModelId
from ...costs.kernels import Sizes, fused_nodes, fused_work, work_of
from ...evaluation.runtimes import open_session, run
from ...lowering.lower import lower
from ...model.saving import save_model
from ...numerics.affine import INT8, INT32, UINT8, QuantParams
from ...operators.graph import Graph, Node, index
from ...operators.table import CONVERSIONS, Constraint
from ...plan.plan import ROUNDS_IN_KERNEL, Kind, NodePlan, QuantPlan
from ...plan.reasons import UnfitNodesError
from ...prepare.shapes import infer_shapes
from ...targets.config import QuantConfig
from ...targets.cost_table import MIN_MICROSECONDS, Conditions, CostTable
from ...targets.machine import is_of_machine, processor
from ...targets.target import Target, dynamic_implementation
from .networks import (
    DIRECT,
    MEMORY_ROWS,
    MOST_PRODUCTS,
    ROWS,
    WIDTHS,
    Net,
    all_nets,
    memory_nets,
    product_net,
    recurrent_nets,
)
from .node_costs import find_costs
from .node_times import ExecutedNode, node_times

T = TypeVar("T")

SECONDS = 0.15  # how long each pair of networks is run at most, beyond the least number of runs

ACTIVATION = QuantParams((1 / 128,), (128,), UINT8)
"""Parameters of all activations: no kernel's time depends on the values."""

COPIES = 9  # products of a network of small ones; what all but one take is free of what a run costs besides
LARGE_PRODUCT = 4e6  # multiply-adds from which on a product takes far longer than calling it

MAX_TURNS, MIN_TURNS = 30, 5
"""Runs of each network of products or recurrent nodes in turns, and the fewest of large ones."""

LONG_NODE = 50.0
"""Microseconds of the nodes of a network, on average, from which on it is not run without the profiler too:
reading that is 2 % of them."""

MIN_RUNS = 10  # runs of a network without the profiler, at least
KernelTime = tuple[str, tuple[float, ...], float]  # name of a kernel, its sizes, microseconds


Overheads = tuple[float, float]
"""Microseconds that are no kernel's: of a run, whatever its nodes; that the profiler adds to a node."""


def measured_costs(target: Target, threads: int, progress: Progress | None = None) -> CostTable:
    """Run every network and return the times of its kernels on this machine; progress is per network."""
    check_machine(target)
    times: dict[str, dict[tuple[float, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    overheads = measured_overheads(threads)
    work = measurements(target, threads, overheads)
    for number, measured in enumerate(work, 1):
        for kernel, sizes, microseconds in measured():
            times[kernel][sizes].append(microseconds)
        if progress is not None:
            progress(number, len(work))
    times["Run"][(1.0,)] = [overheads[0]]
    kernels = {
        kernel: tuple(sorted((*sizes, statistics.median(repeated)) for sizes, repeated in by_sizes.items()))
        for kernel, by_sizes in times.items()
    }
    here = processor()
    described = " ".join([here.model, *here.features])
    return CostTable(Conditions(target.name, described, f"onnxruntime {ort.__version__}", threads), kernels)


def measurements(
    target: Target, threads: int, overheads: Overheads
) -> tuple[Callable[[], Iterator[KernelTime]], ...]:
    """Return all that is to be measured, in order: each a network, or a few that are compared."""
    packs = target.weight_implementations.get("MatMul") == ROUNDS_IN_KERNEL
    sizes = itertools.product(ROWS, WIDTHS, WIDTHS) if packs else ()
    return (
        *(partial(kernel_times, net, target, threads, overheads) for net in all_nets()),
        *(partial(weight_times, rows, target, threads, overheads) for rows in MEMORY_ROWS),
        *(partial(product_times, one, target, threads) for one in sizes if math.prod(one) <= MOST_PRODUCTS),
        *(partial(recurrent_times, net, target, threads) for net in recurrent_nets()),
    )


def check_machine(target: Target) -> None:
    """Raise ConfigError if this machine cannot measure the times of a target."""
    here = platform.machine()
    if not is_of_machine(target.name):
        raise ConfigError(
            f"kernel times: onnxruntime on {here}, here, does not show the kernels of target "
            f"{target.name}; measure on a machine that it is for"
        )


def kernel_times(net: Net, target: Target, threads: int, overheads: Overheads) -> Iterator[KernelTime]:
    """Run a network in float and quantized, and yield the times of the kernels that are measured in it."""
    times: dict[tuple[str, tuple[float, ...]], list[float]] = defaultdict(list)
    for kernel, sizes, microseconds in _node_times(net, target, threads, overheads):
        times[kernel, sizes].append(microseconds)
    for (kernel, sizes), alike in times.items():
        yield kernel, sizes, max(statistics.fmean(alike), 0.0)


def _node_times(net: Net, target: Target, threads: int, overheads: Overheads) -> Iterator[KernelTime]:
    """Yield the time of each node that is measured in a network, in float and quantized."""
    model = ir.from_proto(net.model())
    infer_shapes(model)
    graph = index(model)
    plan = uniform_plan(graph, target, net)
    with temporary_folder() as folder:
        try:
            lowered = lower(model, plan)
        except UnfitNodesError as error:  # it wants other parameters than those of all the others
            unfit = dict.fromkeys(error.reasons, NodePlan(Kind.FLOAT, "not written"))
            plan = replace(plan, nodes={**plan.nodes, **unfit})
            lowered = lower(model, plan)
        paths = {name: Path(folder, f"{name}.onnx") for name in ("float", "int8")}
        save_model(model, paths["float"])
        save_model(lowered.model, paths["int8"])
        executed = node_times(paths, [net.sample()], threads=threads, seconds=SECONDS)
        in_float, in_integers = (
            by_clock(nodes, path, net, threads, overheads)
            for nodes, path in zip(executed, paths.values(), strict=True)
        )
    sizes = Sizes(graph, {name: tuple(dim or 1 for dim in graph.shape(name) or ()) for name in graph.values})

    # What stands between a convolution and an operator in another type or layout.
    if net.measures_conversions:
        for nodes, form in ((in_float, "float"), (in_integers, "integer")):
            for conversion in nodes[1:-1]:
                if conversion.op_type in (*CONVERSIONS, "ReorderInput", "ReorderOutput", "Transpose"):
                    kernel = "Layout" if conversion.op_type == "Transpose" else conversion.op_type
                    yield f"{kernel}:{form}", (float(sizes.elements("x")),), conversion.microseconds
        return

    # The nodes themselves.
    costs = find_costs(graph, plan, in_float, in_integers, names=lowered.names)
    fused = fused_nodes(graph, sizes)
    for node in graph.nodes:
        name, entry = node.name, plan.nodes[node.name]
        if name not in net.measured_nodes:
            continue
        if name in fused and fused[name][0]:
            work = fused_work(node, fused[name][0], sizes)
            yield f"{work.kernel}:float", work.sizes, _fused_time(node, graph, costs.floating)
        elif name not in fused and name in costs.floating and net.context != DIRECT:
            work = work_of(node, sizes, integer=False)
            yield f"{work.kernel}{net.context}:float", work.sizes, costs.floating[name] / work.repeats
        is_executed = name in costs.integer and name not in costs.unfused
        if entry.kind.counts_as_quantized and is_executed:
            form = "integer" if node.output in plan.tensors else "to-float"
            form = "dynamic" if entry.kind is Kind.DYNAMIC else form
            work = work_of(node, sizes, integer=True)
            sized = (net.context and work.channels_last) or work.sizes
            yield f"{work.kernel}{net.context}:{form}", sized, costs.integer[name] / work.repeats


def by_clock(
    nodes: tuple[ExecutedNode, ...], path: Path, net: Net, threads: int, overheads: Overheads
) -> tuple[ExecutedNode, ...]:
    """Return executed nodes with times that add up to a run without the profiler, `overheads` taken off."""
    total, (run, reading) = sum(node.microseconds for node in nodes), overheads
    if total < LONG_NODE * len(nodes):
        reading = (total - run_time(path, net, threads) + run) / len(nodes)
    return tuple(replace(node, microseconds=node.microseconds - reading) for node in nodes)


def run_time(path: Path, net: Net, threads: int) -> float:
    """Return the least microseconds that a run takes without the profiler, its output not copied."""
    session = open_session(str(path), path.stem, threads)
    binding = session.io_binding()
    for name, array in net.sample().items():
        binding.bind_cpu_input(name, array)
    binding.bind_output(session.get_outputs()[0].name)
    clock = time.thread_time if threads == 1 else time.perf_counter
    spent, start = list[float](), time.perf_counter()
    while len(spent) < MIN_RUNS or (len(spent) < 10 * MIN_RUNS and time.perf_counter() - start < SECONDS / 3):
        before = clock()
        session.run_with_iobinding(binding)
        spent.append((clock() - before) * 1e6)
    return min(spent)


def _fused_time(node: Node, graph: Graph, times: Mapping[str, float]) -> float:
    """Return the microseconds that a fused node adds to a convolution, if that was measured."""
    maker = graph.producer(node.input(0))
    if maker is None or maker.op_type != "Conv" or node.op_type == "Mul" or times.get(node.name):
        return times.get(node.name, 0.0)
    plain = graph.nodes[-2]  # a convolution of the same sizes, without anything after it
    return max(times.get(maker.name, 0.0) - times.get(plain.name, 0.0), 0.0)


def uniform_plan(graph: Graph, target: Target, net: Net) -> QuantPlan:
    """Return a plan with every node quantized that the target has a kernel for."""
    nodes = {node.name: _node_plan(node, graph, target, net) for node in graph.nodes}
    tensors: dict[str, QuantParams] = {}
    for node in graph.nodes:
        entry, rule = nodes[node.name], node.rule
        if entry.kind is Kind.FLOAT or rule is None:
            continue

        # Weights have a scale for each channel, biases those of int32 sums.
        for layout in rule.constants:
            array = graph.constant(node.input(layout.index))
            if array is None:
                continue
            axis = layout.axis(node, array.ndim) if array.ndim > 1 else None
            count = 1 if axis is None else array.shape[axis]
            place = None if axis is None else axis % array.ndim
            tensors[node.input(layout.index)] = QuantParams((1 / 128,) * count, (0,) * count, INT8, place)
            bias = "" if layout.bias is None else node.input(layout.bias)
            if bias:
                along = None if axis is None else 0
                tensors[bias] = QuantParams((1 / 16384,) * count, (0,) * count, INT32, along)
        if entry.kind.reads_quantized:
            for name in node.activations:
                tensors.setdefault(name, ACTIVATION)
            returns_float = node.op_type in ("MatMul", "Gemm") and net.float_operators
            if not returns_float:
                tensors.setdefault(node.output, ACTIVATION)
    return _plan(target, tensors, nodes)


def _plan(target: Target, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]) -> QuantPlan:
    return QuantPlan(ModelId("", "", 21), QuantConfig(target=target.name), tensors, nodes)


def _node_plan(node: Node, graph: Graph, target: Target, net: Net) -> NodePlan:
    """Return the plan of a node with everything quantized that can be."""
    rule, op = node.rule, node.op_type
    if op in net.float_operators or rule is None or rule.refusal(node, graph):
        return NodePlan(Kind.FLOAT, "measured in float")
    if net.dynamic:
        if op not in target.dynamic:
            return NodePlan(Kind.FLOAT, "")
        return NodePlan(Kind.DYNAMIC, "", {}, dynamic_implementation(op, target))
    if op not in target.operators:
        table = target.lookup_tables.get(op, "") if rule.unary else ""
        return NodePlan(Kind.LOOKUP_TABLE, "", {}, table) if table else NodePlan(Kind.FLOAT, "no kernel")
    passes_through = rule.constraint in (Constraint.SAME, Constraint.CLAMP) and op not in ("Max", "Min")
    kind = Kind.PASS_THROUGH if passes_through else Kind.QUANTIZED
    way = "" if net.context == DIRECT else target.implementations.get(op, "")
    return NodePlan(kind, "", {}, way)


def weight_times(rows: int, target: Target, threads: int, overheads: Overheads) -> Iterator[KernelTime]:
    """Yield the microseconds that a megabyte of weights adds to a product, by its rows and all megabytes."""
    in_cache: dict[str, float] = {}  # of the smallest model, which comes first
    for net in memory_nets(rows):
        times = [(kernel, spent) for kernel, _, spent in kernel_times(net, target, threads, overheads)]
        for form, megabytes_of_an_element in (("float", 4e-6), ("integer", 1e-6)):
            megabytes = 384 * 1536 * megabytes_of_an_element
            median = statistics.median(spent for kernel, spent in times if kernel.endswith(f":{form}"))
            added = max(median - in_cache.setdefault(form, median), 0.0)
            yield f"Weights:{form}", (float(rows), megabytes * len(net.measured_nodes)), added / megabytes


def product_times(sizes: tuple[int, int, int], target: Target, threads: int) -> Iterator[KernelTime]:
    """Yield the times of a product in float and dynamic, by the clock."""
    rows, inner, columns = sizes
    # What a run costs besides counts where products are small; large weights would crowd the caches.
    counts = (1, COPIES) if inner * columns * rows < LARGE_PRODUCT else (1,)
    models = {}
    for count in counts:
        net = product_net(rows, inner, columns, count)
        model, dynamic = ir.from_proto(net.model()), product_net(rows, inner, columns, count, dynamic=True)
        infer_shapes(model)
        graph = index(model)
        models["float", count] = model
        models["dynamic", count] = lower(model, uniform_plan(graph, target, dynamic)).model
    least = least_times(models, threads)
    for kind in ("float", "dynamic"):
        spent = least[kind, 1]
        if len(counts) > 1:
            spent = (least[kind, COPIES] - spent) / (COPIES - 1)
        yield f"MatMul:{kind}", (float(inner), float(columns), float(rows)), max(spent, MIN_MICROSECONDS)


def recurrent_times(net: Net, target: Target, threads: int) -> Iterator[KernelTime]:
    """Yield the times of a recurrent operator, by the clock: the profiler reads every node of every step."""
    model = ir.from_proto(net.model())
    infer_shapes(model)
    graph = index(model)
    empty = ir.from_proto(Net(net.shape).add("Shape").model(TensorProto.INT64))
    dynamic = lower(model, uniform_plan(graph, target, net)).model
    least = least_times({"empty": empty, "float": model, "dynamic": dynamic}, threads)
    shapes = {name: tuple(dim or 1 for dim in graph.shape(name) or ()) for name in graph.values}
    work = work_of(graph.nodes[0], Sizes(graph, shapes), integer=False)
    for form in ("float", "dynamic"):
        microseconds = max(least[form] - least["empty"], MIN_MICROSECONDS)
        yield f"{work.kernel}:{form}", work.sizes, microseconds / work.repeats


def least_times(models: Mapping[T, ir.Model], threads: int) -> dict[T, float]:
    """Return the least microseconds of a run of each model: they are run in turns, without the profiler."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    rng, least, turns = np.random.default_rng(0), dict.fromkeys(models, math.inf), 0
    with temporary_folder() as folder:
        runs = []
        for number, (key, model) in enumerate(models.items()):
            path = Path(folder, f"{number}.onnx")
            save_model(model, path)
            session = open_session(str(path), str(key), threads)
            feeds = {value.name: rng.random(value.shape, np.float32) for value in session.get_inputs()}
            runs.append((key, session, [value.name for value in session.get_outputs()], feeds))
        start = time.perf_counter()
        while turns < MIN_TURNS or (turns < MAX_TURNS and time.perf_counter() - start < SECONDS):
            for key, session, outputs, feeds in runs:
                before = clock()
                run(session, outputs, feeds, str(key))
                least[key] = min(least[key], (clock() - before) * 1e6)
            turns += 1
    return least


def measured_overheads(threads: int) -> Overheads:
    """Return the time of a run beyond its nodes, and of the profiler's reading of a node."""
    lengths, runs, read = (16, 64), list[float](), list[float]()
    for length in lengths:
        net = Net((1, 16))
        for number in range(length):
            net.add("Neg" if number % 2 else "Abs")
        with temporary_folder() as folder:
            path = Path(folder, "calls.onnx")
            save_model(ir.from_proto(net.model()), path)
            (nodes,) = node_times({"calls": path}, [net.sample()], threads=threads, seconds=SECONDS)
            read.append(sum(node.microseconds for node in nodes))
            runs.append(min(run_time(path, net, threads) for _ in range(MIN_RUNS)))
    shorter, longer = lengths
    node = (runs[1] - runs[0]) / (longer - shorter)
    return max(runs[0] - shorter * node, 0.0), (read[1] - read[0]) / (longer - shorter) - node
