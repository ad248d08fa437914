"""A table of measured costs: small networks are run in float and quantized, and their nodes timed.

What is written for the quantized form is the target's own: the lowering writes a plan in which everything is
quantized that the target has a kernel for, all activations with the same parameters. So a kernel's time is
that of the implementation which a model will have, with all that onnxruntime makes of it.

Chains of nodes give the times of most kernels (`kernel_times`). The profiler says which node of a chain takes
how much of it; reading it takes longer than a small node does, and it counts in whole microseconds. So the
clock says how long all of them take together, in runs without the profiler (`by_clock`). Products with packed
weights, recurrent operators and what a run costs besides its nodes have networks and clocks of their own.
"""

from __future__ import annotations

import itertools
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from ....profiles.base.errors import ConfigError
from ....profiles.base.output_files import temporary_folder
from ....profiles.base.tool import Progress
from ....profiles.records.profile import ModelId
from ...costs.kernels import Sizes, fused_nodes, fused_work, work_of
from ...evaluation.node_times import ExecutedNode, node_times
from ...evaluation.runtimes import open_session, run
from ...lowering.lower import lower
from ...model.saving import save_model
from ...numerics.affine import INT8, INT32, UINT8, QuantParams
from ...operators.graph import Graph, Node, index
from ...operators.table import CONVERSIONS, Constraint
from ...plan.plan import ROUNDS_IN_KERNEL, Kind, NodePlan, QuantPlan
from ...plan.reasons import UnfitNodesError
from ...prepare.shapes import infer_shapes
from ...search.node_costs import find_costs
from ...targets.config import QuantConfig
from ...targets.cost_table import MIN_MICROSECONDS, Conditions, CostTable
from ...targets.machine import is_of_machine, processor
from ...targets.target import Target, dynamic_implementation
from .networks import DIRECT, MOST_PRODUCTS, ROWS, WIDTHS, Net, all_nets, memory_nets, recurrent_nets

SECONDS = 0.15  # how long each pair of networks is run at most, beyond the least number of runs

ACTIVATION = QuantParams((1 / 128,), (128,), UINT8)
"""Of all activations: no kernel's time depends on the values."""

COPIES = 9  # products of a network of small ones; what all but one take is free of what a run costs besides
LARGE_PRODUCT = 4e6  # multiply-adds from which on a product takes far longer than calling it

ROUNDS_IN_TURNS, MIN_TURNS = 30, 5
"""Runs of each network of products or recurrent nodes in turns, and the fewest of large ones."""

LONG_NODE = 50.0
"""Microseconds of the nodes of a network, on average, from which on it is not run without the profiler too:
reading that is 2 % of them."""

MIN_RUNS = 10  # runs of a network without the profiler, at least
KernelTime = tuple[str, tuple[float, ...], float]  # name of a kernel, its sizes, microseconds


@dataclass(frozen=True)
class Overheads:
    """Microseconds that are no kernel's."""

    run: float  # of a run, whatever its nodes
    reading: float  # that the profiler adds to the time of a node


def measured_costs(target: Target, threads: int, progress: Progress | None = None) -> CostTable:
    """Run every network and return the times of its kernels on this machine; progress is per network."""
    check_machine(target)
    times: dict[str, dict[tuple[float, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    nets, overheads = all_nets(), measured_overheads(threads)
    for number, net in enumerate(nets, 1):
        for kernel, sizes, microseconds in kernel_times(net, target, threads, overheads):
            times[kernel][sizes].append(microseconds)
        if progress is not None:
            progress(number, len(nets))
    for kernel, sizes, microseconds in itertools.chain(
        weight_times(target, threads, overheads),
        packed_times(target, threads),
        recurrent_times(target, threads),
    ):
        times[kernel][sizes].append(microseconds)
    times["Run"][(1.0,)] = [overheads.run]
    kernels = {
        kernel: tuple(sorted((*sizes, statistics.median(repeated)) for sizes, repeated in by_sizes.items()))
        for kernel, by_sizes in times.items()
    }
    here = processor()
    described = " ".join([here.model, *here.features])
    return CostTable(Conditions(target.name, described, f"onnxruntime {ort.__version__}", threads), kernels)


def check_machine(target: Target) -> None:
    """Raise ConfigError where this machine cannot tell the times of a target."""
    here = platform.machine()
    if not is_of_machine(target.name):
        raise ConfigError(
            f"measure-target: onnxruntime on {here}, here, says nothing about the kernels of target "
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
        if name in fused and fused[name].kernel:
            work = fused_work(node, fused[name].kernel, sizes)
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
    total, reading = sum(node.microseconds for node in nodes), overheads.reading
    if total < LONG_NODE * len(nodes):
        reading = (total - run_time(path, net, threads) + overheads.run) / len(nodes)
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
    """Return the microseconds that a fused node adds to a convolution, where that has its time."""
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
    return QuantPlan(ModelId("", "", 21), QuantConfig(target=target.name), tensors, nodes)


def _node_plan(node: Node, graph: Graph, target: Target, net: Net) -> NodePlan:
    """Return the plan of a node where all is quantized that can be."""
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


def weight_times(target: Target, threads: int, overheads: Overheads) -> Iterator[KernelTime]:
    """Yield the microseconds that a megabyte of weights adds to a product, by its rows and all megabytes."""
    in_cache: dict[tuple[str, float], float] = {}  # of the smallest model, which comes first
    for net in memory_nets():
        times = [
            (kernel, microseconds)
            for kernel, _, microseconds in kernel_times(net, target, threads, overheads)
        ]
        for form, megabytes_of_an_element in (("float", 4e-6), ("integer", 1e-6)):
            megabytes, rows = 384 * 1536 * megabytes_of_an_element, float(net.shape[0])
            median = statistics.median(time_ for kernel, time_ in times if kernel.endswith(f":{form}"))
            added = max(median - in_cache.setdefault((form, rows), median), 0.0)
            yield f"Weights:{form}", (rows, megabytes * len(net.measured_nodes)), added / megabytes


def packed_times(target: Target, threads: int) -> Iterator[KernelTime]:
    """Yield the times of products with packed weights, by the clock: the profiler's reading takes longer."""
    if target.weight_implementations.get("MatMul") != ROUNDS_IN_KERNEL:
        return
    for inner, columns, rows in itertools.product(WIDTHS, WIDTHS, ROWS):
        if inner * columns * rows > MOST_PRODUCTS:
            continue
        kinds = ("float", "dynamic", "packed4", "packed8")
        # What a run costs besides counts where products are small; large weights would crowd the caches.
        counts = (1, COPIES) if inner * columns * rows < LARGE_PRODUCT else (1,)
        values = np.random.default_rng(0).normal(size=(rows, inner)).astype(np.float32)
        spent: dict[tuple[str, int], list[float]] = defaultdict(list)
        clock = time.thread_time if threads == 1 else time.perf_counter
        with temporary_folder() as folder:
            sessions = {}
            for kind, count in itertools.product(kinds, counts):
                path = Path(folder, f"{kind}{count}.onnx")
                save_model(ir.from_proto(product_model(inner, columns, kind, count)), path)
                sessions[kind, count] = open_session(str(path), kind, threads)
            for _ in range(ROUNDS_IN_TURNS):
                for (kind, count), session in sessions.items():
                    sample = {f"x{number}": values for number in range(count)}
                    outputs = [f"y{number}" for number in range(count)]
                    before = clock()
                    run(session, outputs, sample, kind)
                    spent[kind, count].append((clock() - before) * 1e6)
        for kind in kinds:
            least = [min(spent[kind, count]) for count in counts]
            time_ = least[0] if len(least) == 1 else (least[1] - least[0]) / (COPIES - 1)
            yield f"MatMul:{kind}", (float(inner), float(columns), float(rows)), max(time_, MIN_MICROSECONDS)


def recurrent_times(target: Target, threads: int, nets: Iterable[Net] | None = None) -> Iterator[KernelTime]:
    """Yield the times of recurrent operators, by the clock: the profiler reads every node of every step."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    for net in recurrent_nets() if nets is None else nets:
        model = ir.from_proto(net.model())
        infer_shapes(model)
        graph = index(model)
        empty = Net(net.shape).add("Shape")
        models = {
            "empty": ir.from_proto(empty.model(TensorProto.INT64)),
            "float": model,
            "dynamic": lower(model, uniform_plan(graph, target, net)).model,
        }
        spent: dict[str, list[float]] = defaultdict(list)
        with temporary_folder() as folder:
            sessions = {}
            for form, written in models.items():
                path = Path(folder, f"{form}.onnx")
                save_model(written, path)
                sessions[form] = open_session(str(path), form, threads)
            start = time.perf_counter()
            while len(spent["empty"]) < MIN_TURNS or (
                len(spent["empty"]) < ROUNDS_IN_TURNS and time.perf_counter() - start < SECONDS
            ):
                for form, session in sessions.items():
                    output = empty.output if form == "empty" else net.output
                    before = clock()
                    run(session, [output], net.sample(), form)
                    spent[form].append((clock() - before) * 1e6)
        besides = min(spent["empty"])
        shapes = {name: tuple(dim or 1 for dim in graph.shape(name) or ()) for name in graph.values}
        work = work_of(graph.nodes[0], Sizes(graph, shapes), integer=False)
        for form in ("float", "dynamic"):
            microseconds = max(min(spent[form]) - besides, MIN_MICROSECONDS)
            yield f"{work.kernel}:{form}", work.sizes, microseconds / work.repeats


def product_model(inner: int, columns: int, kind: str, copies: int) -> onnx.ModelProto:
    """Return products "float", "packed4", "packed8" or "dynamic" with one weight, each with its own input."""
    rng, dtype, make_node = np.random.default_rng(1), onnx.TensorProto.FLOAT, helper.make_node
    arrays: dict[str, npt.NDArray[Any]]
    if kind == "float":
        arrays = {"w": rng.normal(size=(inner, columns)).astype(np.float32)}
        nodes = [make_node("MatMul", [f"x{i}", "w"], [f"y{i}"]) for i in range(copies)]
    elif kind == "dynamic":
        arrays = {
            "w": rng.integers(-127, 128, size=(inner, columns), dtype=np.int8),
            "s": np.full(columns, 0.01, np.float32),
        }
        nodes = []
        for i in range(copies):
            nodes += [
                make_node("DynamicQuantizeLinear", [f"x{i}"], [f"q{i}", f"qs{i}", f"qz{i}"]),
                make_node("MatMulInteger", [f"q{i}", "w", f"qz{i}"], [f"i{i}"]),
                make_node("Cast", [f"i{i}"], [f"f{i}"], to=dtype),
                make_node("Mul", [f"qs{i}", "s"], [f"qss{i}"]),
                make_node("Mul", [f"f{i}", f"qss{i}"], [f"y{i}"]),
            ]
    else:
        bits = int(kind.removeprefix("packed"))
        block = 32 if bits == 4 else inner & -inner  # a power of two that divides it
        blocks = inner // block
        arrays = {
            "w": rng.integers(256, size=(columns, blocks, block * bits // 8), dtype=np.uint8),
            "s": rng.uniform(0.01, 0.02, columns * blocks).astype(np.float32),
        }
        if bits == 4:
            arrays["z"] = rng.integers(256, size=columns * -(-blocks // 2), dtype=np.uint8)
        sizes: Any = {"K": inner, "N": columns, "bits": bits, "block_size": block, "accuracy_level": 4}
        nodes = [
            make_node("MatMulNBits", [f"x{i}", *arrays], [f"y{i}"], domain="com.microsoft", **sizes)
            for i in range(copies)
        ]
    x = [helper.make_tensor_value_info(f"x{i}", dtype, ("rows", inner)) for i in range(copies)]
    y = [helper.make_tensor_value_info(f"y{i}", dtype, ("rows", columns)) for i in range(copies)]
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "products", x, y, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


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
    return Overheads(max(runs[0] - shorter * node, 0.0), (read[1] - read[0]) / (longer - shorter) - node)
