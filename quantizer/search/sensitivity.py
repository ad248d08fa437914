"""How sensitive the outputs are to each quantized node: quantized alone, and left float alone.

Measured naively, both need a model and a session of their own for each node, which makes such analyses slow:
on a model of 100 quantized nodes, 200 sessions and 200 whole runs of each sample. Here the samples go through
the graph together, once. At each node the live tensors are held twice, as the float model and as the
quantized model compute them, so nothing upstream of the node is computed again:

- *only quantized*: starting from the float tensors, the node under the plan and everything downstream float;
- *left float*: starting from the quantized model's tensors, the node float and everything downstream under
  the plan.

Everything downstream is run in two submodels, so that few large sessions are created: a small one from the
node to the end of its segment (there are about sqrt(nodes) segments), and one of all later segments that all
nodes of the segment share. Each submodel is lowered and optimised as the model itself is, with its integer
kernels and fusions: the noise is real and not simulated. In total this takes about half a run of each model
for each node and sample. Alternatives: a switch at every tensor of one session (an If or Where on a boolean
input) runs the whole model each time, without fusion, and with both forms of every tensor; adding up noise
that was measured node by node in one run does not show what becomes of it downstream. Compared with a session
for each variant it took 0.4 to 0.6 of the time (89 and 79 nodes, 2 to 8 samples). The two agree up to noise:
where a sum lies midway between two integers, its last bit decides, and in a plan with all other nodes
quantized such a step is another draw of the same noise.

An output of a float Softmax is measured at the Softmax's input: probabilities near 0 and 1 hide the noise of
a whole network until an answer changes, and then only show how many did.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...profiles.base.errors import DataError, PlanError
from ...profiles.base.presentation import Presentation, Presented, Table, decibels
from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.runtime.providers import CPU, check_provider
from ...profiles.samples.objects import DataLike
from ...profiles.samples.samples import input_specs, open_samples
from ...profiles.samples.values import Sample
from ..evaluation.compare import ClassAxis, OutputResult, OutputSums, class_axes
from ..evaluation.runtimes import open_session, run
from ..exchange.profiles import read_profile
from ..lowering.lower import lower_part
from ..model.graph import name_of, output_name
from ..model.saving import save_model
from ..noise.estimate_check import EstimateCheck, check_estimates, expected_sqnr, too_good_texts
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..plan.store import PlanLike, plan_name, read_plan
from ..planning.chains import planned_chains
from ..planning.plan_model import PlannedModel, check_without_samples, model_facts, open_plan
from ..prepare.prepare import PreparedModel, ProfileLike, open_prepared
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .fallback_nodes import plan_that_runs

# A model split into submodels of consecutive nodes, each of which is lowered and run by itself.
#
# A submodel reads tensors of earlier nodes and returns those that later nodes, or the caller, read. All
# tensors
# cross its ends as float values: a quantized tensor is dequantized where a submodel ends, and the next
# one
# quantizes it to the same integers, since quantizing a dequantized value changes nothing. So the
# submodels of a
# plan, run one after the other, compute what the whole quantized model computes, and any of them can be
# run
# under another plan instead.

Values = Mapping[str, Any]
"""Arrays by tensor name."""

FLOAT_HERE = NodePlan(Kind.FLOAT, "float in this variant of the plan")


@dataclass(frozen=True, eq=False)
class SplittableModel:
    """A prepared model with the first and last use of each tensor.

    Attributes:
        model: the prepared model.
        nodes: of its main graph, in order.
        producers: tensor -> index of the node that computes it; -1 for graph inputs.
        last_uses: tensor -> index of the last node that reads it, in its subgraphs too; the number of nodes
            for graph outputs and other tensors that the caller reads.
    """

    model: ir.Model
    nodes: tuple[ir.Node, ...]
    producers: Mapping[str, int]
    last_uses: Mapping[str, int]

    def inputs_of(self, start: int, end: int) -> list[str]:
        """Return the earlier tensors that the nodes from `start` to before `end` read."""
        read = {str(value.name): None for i in range(start, end) for value in _reads(self.nodes[i])}
        return [name for name in read if self.producers.get(name, start) < start]

    def outputs_of(self, start: int, end: int) -> list[str]:
        """Return the tensors of nodes `start` to `end` - 1 that later nodes or the caller read."""
        names = (value.name for i in range(start, end) for value in self.nodes[i].outputs if value.name)
        return [name for name in names if self.last_uses.get(name, -1) >= end]


def splittable_model(model: ir.Model, watched: Sequence[str] = ()) -> SplittableModel:
    """Return the index that `open_submodel` needs of a prepared model, which must not be edited afterwards.

    Args:
        model: the prepared model.
        watched: tensors that the caller reads besides the graph outputs.
    """
    nodes = tuple(model.graph)
    producers = {str(v.name): -1 for v in model.graph.inputs if not v.is_initializer()}
    last_uses: dict[str, int] = {}
    for index, node in enumerate(nodes):
        producers.update((value.name, index) for value in node.outputs if value.name)
        last_uses.update((str(value.name), index) for value in _reads(node))
    last_uses.update(dict.fromkeys([*(str(v.name) for v in model.graph.outputs), *watched], len(nodes)))
    return SplittableModel(model, nodes, producers, last_uses)


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads, its subgraphs included."""
    inner = [n for g in graph_attributes(node) for n in g.all_nodes()]
    outer = [v for g in graph_attributes(node) for v in g.outputs]
    for reader in (node, *inner):
        yield from (value for value in reader.inputs if value is not None)
    yield from outer


def only_quantized(plan: QuantPlan, group: Collection[str]) -> QuantPlan:
    """Return the plan with all nodes float except those of a group (see `node_groups`)."""
    return replace(plan, nodes={n: entry if n in group else FLOAT_HERE for n, entry in plan.nodes.items()})


def left_float(plan: QuantPlan, group: Collection[str]) -> QuantPlan:
    """Return the plan with the nodes of a group float; tensors that neighbours quantize stay quantized."""
    return replace(plan, nodes={**plan.nodes, **dict.fromkeys(group, FLOAT_HERE)})


def node_groups(source: SplittableModel, plan: QuantPlan) -> dict[int, tuple[int, ...]]:
    """Return the indices of the quantized nodes that are measured together, by the first of them.

    The nodes of one look-up table are a group, the one that makes the result last. Every other node is a
    group of its own.
    """
    places = {node: index for index, node in enumerate(source.nodes)}
    tables = planned_chains(source.nodes, plan)
    groups = [
        tuple(places[part] for part in tables.get(name_of(node), (node,)))
        for node in source.nodes
        if plan.nodes[name_of(node)].kind is not Kind.FLOAT
        and not plan.is_part(name_of(node), output_name(node))
    ]
    return {min(group): group for group in sorted(groups, key=min)}


def segments(
    starts: Sequence[int], count: int, ends: Sequence[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of segments that cover all nodes, with about sqrt(n) of the n groups in each.

    No group is split: it reaches from its start to its end (by default the same node). With s segments 2s
    large sessions are created, and n small ones of n / s nodes: the sum is smallest at sqrt(n).

    Args:
        starts: index of the first node of each group, ascending.
        count: number of nodes.
        ends: index of the last node of each group; None where groups are single nodes.
    """
    step = max(1, math.isqrt(len(starts)))
    spans = list(zip(starts, ends or starts, strict=True))
    cuts = [cut for cut in starts[step::step] if not any(start < cut <= end for start, end in spans)]
    return tuple(pairwise([0, *cuts, count]))


def open_submodel(
    source: SplittableModel,
    start: int,
    end: int,
    plan: QuantPlan | None,
    threads: int = 1,
    *,
    provider: str = CPU,
) -> Callable[[Values, str], dict[str, Any]]:
    """Return a function that runs the nodes from `start` to before `end`.

    Args:
        source: the prepared model.
        start, end: indices of nodes.
        plan: that the submodel is lowered with; None for float.
        threads: inside an operator.
        provider: full name of the execution provider.

    Returns:
        A function of the arrays by name (those that the submodel does not read are ignored) and of the
        sample's name, for messages; returns the submodel's output arrays by name.

    Raises:
        ModelError: onnxruntime refuses the submodel, or, from the function, a run.
        PlanError: the plan cannot be lowered.
    """
    inputs, outputs = source.inputs_of(start, end), source.outputs_of(start, end)
    if not outputs:
        return lambda values, sample: {}
    name = f"nodes '{source.nodes[start].name}' to '{source.nodes[end - 1].name}'"
    submodel = _submodel(source, start, end, inputs, outputs)
    submodel = (
        submodel if plan is None else lower_part(submodel, _whole_tables(source, start, end, plan)).model
    )
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_model(submodel, Path(folder) / "submodel.onnx")
        session = open_session(str(Path(folder) / "submodel.onnx"), name, threads, provider=provider)

    def run_on(values: Values, sample: str) -> dict[str, Any]:
        feed = {n: values[n] for n in inputs}
        return dict(zip(outputs, run(session, outputs, feed, f"{name}, sample {sample}"), strict=True))

    return run_on


def _whole_tables(source: SplittableModel, start: int, end: int, plan: QuantPlan) -> QuantPlan:
    """Return the plan with float nodes in place of the look-up tables that a submodel splits."""
    nodes = source.nodes[start:end]
    tables, inside = planned_chains(nodes, plan), set(nodes)
    whole = {part for parts in tables.values() if inside.issuperset(parts) for part in parts}
    split = [
        name_of(node)
        for node in nodes
        if node not in whole and (node.name in tables or plan.is_part(name_of(node), output_name(node)))
    ]
    return left_float(plan, split) if split else plan


def _submodel(
    source: SplittableModel, start: int, end: int, inputs: Sequence[str], outputs: Sequence[str]
) -> ir.Model:
    """Return the nodes from `start` to before `end` as a model."""
    graph = source.model.graph
    nodes = source.nodes[start:end]
    by_name = {str(v.name): v for v in graph.inputs}
    by_name |= {str(v.name): v for node in source.nodes[:end] for v in node.outputs}
    constants = {v.name: v for node in nodes for v in _reads(node) if v.name in graph.initializers}
    view = ir.GraphView(
        [by_name[n] for n in inputs],
        [by_name[n] for n in outputs],
        nodes=nodes,
        initializers=tuple(constants.values()),
        opset_imports=graph.opset_imports,
        name=graph.name,
    )
    functions = [f.clone() for f in source.model.functions.values()]
    return ir.Model(view.clone(), ir_version=source.model.ir_version, functions=functions)


class SampleWalk:
    """Samples on their way through the graph: the live tensors of each sample at the current node."""

    def __init__(
        self, source: SplittableModel, samples: Sequence[Sample], threads: int, provider: str = CPU
    ) -> None:
        self._source, self._threads, self._provider = source, threads, provider
        self._names = [sample.name for sample in samples]
        self._live: list[dict[str, Any]] = [dict(sample.arrays) for sample in samples]
        self._at = 0

    def advance(self, index: int, plan: QuantPlan | None) -> None:
        """Go on to the node with an index."""
        if index == self._at:
            return
        step = open_submodel(self._source, self._at, index, plan, self._threads, provider=self._provider)
        last = self._source.last_uses
        self._live = [
            {n: v for n, v in {**values, **step(values, name)}.items() if last.get(n, -1) >= index}
            for values, name in zip(self._live, self._names, strict=True)
        ]
        self._at = index

    def outputs(
        self, names: Sequence[str], *parts: Callable[[Values, str], Mapping[str, Any]]
    ) -> Iterator[list[Any]]:
        """Yield tensors of each sample after the submodels `parts` were run from here, in turn."""
        graph = self._source.model.graph
        constants = {str(v.name): v.const_value.numpy() for v in graph.outputs if v.const_value is not None}
        for live, sample in zip(self._live, self._names, strict=True):
            values = {**constants, **live}
            for part in parts:
                values |= part(values, sample)
            yield [values[n] for n in names]


LIMIT = 8
"""Samples that are used when no number is given: all of them are in memory at once."""

WORTH_DB, MOST = 0.5, 5
"""Least recovery (dB) of a node that is suggested to be kept float, and the most nodes that are suggested."""

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Effect:
    """How far the outputs of one variant of the model are from the float model's.

    Attributes:
        sqnr: of each float output in dB, by name (of a Softmax's input, where that is measured in place of
            the output); inf where nothing differs.
        worst_sqnr: the lowest of them; None without float outputs.
        worst_group_sqnr: the lowest of any group of channels with a range of their own.
        agreement: lowest share of equal answers (top-1, or equal elements) of any output; None where there
            are none.
    """

    sqnr: Mapping[str, float]
    worst_sqnr: float | None
    worst_group_sqnr: float | None
    agreement: float | None


@dataclass(frozen=True)
class NodeSensitivity:
    """The sensitivity of one quantized node, or of a node group that is one look-up table.

    Attributes:
        node: its name; of a group that of the last node.
        op_type: its operator; of a group all of them.
        group: names of all nodes that were measured together.
        kind: of the node in the plan.
        output: its first output.
        only_quantized: the outputs when only this node is quantized.
        left_float: the outputs when all quantized nodes except this one are.
        recovered: dB of the worst output that are recovered when this node is kept float; below 0 where the
            output gets worse. None where the output is missing or equal in both.
    """

    node: str
    op_type: str
    group: tuple[str, ...]
    kind: str
    output: str
    only_quantized: Effect
    left_float: Effect
    recovered: float | None


@dataclass(frozen=True, repr=False)
class Sensitivities(Presented):
    """Every quantized node of a plan, ranked.

    Attributes:
        model: file name.
        samples: how many were used.
        quantized: the outputs of the whole plan.
        nodes: the node with the lowest SQNR when only it is quantized first; equals in graph order.
        estimates: SQNR of the outputs as the plan was estimated to keep it, and as measured here; empty where
            the plan says nothing of it.
    """

    model: str
    samples: int
    quantized: Effect
    nodes: tuple[NodeSensitivity, ...]
    estimates: tuple[EstimateCheck, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """A sentence for each estimate that was too good."""
        return too_good_texts(self.estimates)

    def headline(self) -> str:
        """Return the model, how many nodes were measured, and the SQNR of the whole plan."""
        worst = decibels(self.quantized.worst_sqnr)
        return f"{self.model}, {len(self.nodes)} quantized nodes, {worst} dB together"

    def presentation(self) -> Presentation:
        """Return a table of the nodes, the most sensitive first."""
        header = ("node", "operator", "kind", "only this quantized, dB", "recovered if float, dB")
        rows = tuple(
            (
                node.node,
                node.op_type,
                node.kind,
                decibels(node.only_quantized.worst_sqnr),
                "-" if node.recovered is None else f"{node.recovered:+.2f}",
            )
            for node in self.nodes
        )
        facts = [("samples", str(self.samples))]
        facts += [("keep_float", ", ".join(self.keep_float))] if self.keep_float else []
        facts += [("remark", remark) for remark in self.remarks]
        return Presentation(tuple(facts), (Table(header, rows, left=3),))

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Names of the nodes to try as `--keep-float`: those that recover most, each measured by itself."""
        worth = [n for n in self.nodes if n.recovered is not None and n.recovered >= WORTH_DB]
        best = sorted(worth, key=lambda n: -(n.recovered or 0.0))[:MOST]
        return tuple(dict.fromkeys(name for node in best for name in node.group))


@dataclass(frozen=True)
class SensitivityRun:
    """How a sensitivity is measured.

    Attributes:
        limit: number of samples used, from the first, which are held in memory; None for all.
        threads: inside an operator; 0 for all cores.
        class_axis: axis of the classes of the first output; None for what its operator says (`class_axes`).
        provider: execution provider of onnxruntime that runs the models, in full or short.
    """

    limit: int | None = LIMIT
    threads: int = 0
    class_axis: int | None = None
    provider: str = "cpu"


def sensitivity(
    model_path: str | Path,
    profile_path: ProfileLike | None,
    data: DataLike,
    *,
    recipe: Recipe | None = None,
    plan_path: PlanLike | None = None,
    run: SensitivityRun | None = None,
    progress: Progress | None = None,
) -> Sensitivities:
    """Measure how sensitive the outputs are to every quantized node.

    Args:
        model_path: float ONNX model.
        profile_path: its profile; not needed with `plan_path`.
        data: folder of samples, "module:function", or an object of Python (`open_samples`).
        recipe: settings and target; None for the default target's.
        plan_path: a saved plan to measure instead of the one that the recipe gives.
        run: how it is measured; None for the defaults.
        progress: called after each node with how many runs of a sample are done, and how many there will be.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    run = run or SensitivityRun()
    prepared = open_prepared(model_path)
    planned = _planned(prepared, profile_path, plan_path, recipe, str(model_path))
    samples = list(open_samples(data, input_specs(prepared.model), run.limit))
    return sensitivity_of(planned.model, planned.plan, samples, run, progress)


def _planned(
    prepared: PreparedModel,
    profile_path: ProfileLike | None,
    plan_path: PlanLike | None,
    recipe: Recipe | None,
    where: str,
) -> PlannedModel:
    """Return the plan in a file, or the one that a profile and a recipe give."""
    if plan_path is not None:
        return open_plan(prepared, read_plan(plan_path), plan_name(plan_path))
    if profile_path is None:
        raise PlanError(f"{where}: a profile or a plan is needed; make a profile with qprof dump-profile")
    profile = read_profile(profile_path, prepared.model, prepared.identity)
    check_without_samples((recipe := recipe or load_recipe()).config)
    return plan_that_runs(model_facts(prepared, profile, recipe), Path(where))[0]


def sensitivity_of(
    model: ir.Model,
    plan: QuantPlan,
    samples: Sequence[Sample],
    run: SensitivityRun | None = None,
    progress: Progress | None = None,
) -> Sensitivities:
    """Measure how sensitive the outputs of a planned model are to every quantized node; see `sensitivity`.

    Raises:
        DataError: there are no samples. ModelError: a submodel cannot be run.
    """
    if not samples:
        raise DataError("sensitivity: no samples; there is nothing to measure on")
    run = run or SensitivityRun()
    watched = measured_tensors(model, plan, run.class_axis)
    source = splittable_model(model, tuple(watched))
    groups = node_groups(source, plan)
    measurement = _Measurement(source, plan, watched, samples, run)
    nodes: list[NodeSensitivity] = []
    for begin, end in segments(list(groups), len(source.nodes), [max(group) for group in groups.values()]):
        inside = [group for first, group in groups.items() if begin <= first < end]
        for node in measurement.of_segment(inside, end):
            nodes.append(node)
            if progress is not None:
                progress(2 * len(samples) * len(nodes), 2 * len(samples) * len(groups))
    return Sensitivities(
        model=plan.model.file,
        samples=len(samples),
        quantized=measurement.quantized,
        nodes=ranked(nodes),
        estimates=check_estimates(
            expected_sqnr(plan.origin.estimated_sqnr, plan.origin.sqnr_bands), measurement.sqnr
        ),
    )


def measured_tensors(model: ir.Model, plan: QuantPlan, class_axis: int | None = None) -> dict[str, ClassAxis]:
    """Return the graph outputs, with the output of a float Softmax or LogSoftmax replaced by its input, and
    where each has its classes; those of the first along `class_axis`, if that is given."""
    watched: dict[str, ClassAxis] = {}
    first = None if class_axis is None else name_of(model.graph.outputs[0])
    axes = class_axes(model, first, class_axis)
    for value in model.graph.outputs:
        node = value.producer()
        source = None
        if node is not None and node.op_type in ("Softmax", "LogSoftmax"):
            source = node.inputs[0] if plan.nodes[name_of(node)].kind is Kind.FLOAT else None
        watched.setdefault(name_of(value if source is None else source), axes[name_of(value)])
    return watched


def ranked(nodes: Sequence[NodeSensitivity]) -> tuple[NodeSensitivity, ...]:
    """Return the nodes, the one with the lowest SQNR when only it is quantized first.

    Without float outputs the share of equal answers decides.
    """

    def key(node: NodeSensitivity) -> tuple[float, float]:
        worst, agreement = node.only_quantized.worst_sqnr, node.only_quantized.agreement
        return (math.inf if worst is None else worst, 1.0 if agreement is None else agreement)

    return tuple(sorted(nodes, key=key))


def recovered(quantized: Effect, with_float: Effect) -> float | None:
    """Return by how many dB the worst output is better with a node kept float than under the whole plan."""
    before, after = quantized.worst_sqnr, with_float.worst_sqnr
    if before is None or after is None or before == after:
        return None if before is None else 0.0
    return None if math.isnan(after - before) else after - before


def effect_of(results: Sequence[OutputResult]) -> Effect:
    """Return the figures of all outputs as one record."""
    sqnr = {r.name: r.difference.sqnr for r in results if r.difference is not None}
    groups = [g.difference.sqnr for r in results if r.channels is not None for g in r.channels.groups]
    ratios = [r.agreement.ratio for r in results if r.agreement is not None]
    return Effect(
        sqnr,
        min(sqnr.values(), default=None),
        min([*groups, *sqnr.values()], default=None),
        min(ratios, default=None),
    )


def _results(
    watched: Mapping[str, ClassAxis], float_outputs: Iterable[list[Any]], outputs: Iterable[list[Any]]
) -> list[OutputResult]:
    sums = [OutputSums(axis) for axis in watched.values()]
    for expected, actual in zip(float_outputs, outputs, strict=True):
        sums = [s.added(f, q) for s, f, q in zip(sums, expected, actual, strict=True)]
    return [s.result(name) for s, name in zip(sums, watched, strict=True)]


class _Measurement:
    """The samples on their way through the float and the quantized model, segment by segment."""

    def __init__(
        self,
        source: SplittableModel,
        plan: QuantPlan,
        watched: Mapping[str, ClassAxis],
        samples: Sequence[Sample],
        run: SensitivityRun,
    ) -> None:
        threads, provider = run.threads, check_provider(run.provider)
        self._source, self._plan, self._watched = source, plan, watched
        self._submodel = partial(open_submodel, source, threads=threads, provider=provider)
        self._float = SampleWalk(source, samples, threads, provider)
        self._quantized = SampleWalk(source, samples, threads, provider)
        count = len(source.nodes)
        others = [name_of(v) for v in source.model.graph.outputs if v.name not in watched]
        names = {**watched, **dict.fromkeys(others, ClassAxis())}
        outputs = list(self._float.outputs(tuple(names), self._submodel(0, count, None)))
        quantized = self._quantized.outputs(tuple(names), self._submodel(0, count, plan))
        results = _results(names, outputs, quantized)
        self.quantized = effect_of(results[: len(watched)])
        self.sqnr = {r.name: r.difference.sqnr for r in results if r.difference}
        self._float_outputs = [values[: len(watched)] for values in outputs]

    def of_segment(self, groups: Iterable[tuple[int, ...]], end: int) -> Iterator[NodeSensitivity]:
        """Yield the sensitivity of the node groups of a segment that ends before node `end`."""
        count = len(self._source.nodes)
        float_rest, quantized_rest = (self._submodel(end, count, plan) for plan in (None, self._plan))
        for group in groups:
            begin = min(group)
            self._float.advance(begin, None)
            self._quantized.advance(begin, self._plan)
            names = [name_of(self._source.nodes[i]) for i in group]
            alone = self._submodel(begin, end, only_quantized(self._plan, names))
            without = self._submodel(begin, end, left_float(self._plan, names))
            yield self._result(
                [self._source.nodes[i] for i in group],
                self._effect(self._float, alone, float_rest),
                self._effect(self._quantized, without, quantized_rest),
            )

    def _effect(self, walk: SampleWalk, *parts: Callable[[Values, str], Mapping[str, Any]]) -> Effect:
        outputs = walk.outputs(tuple(self._watched), *parts)
        return effect_of(_results(self._watched, self._float_outputs, outputs))

    def _result(self, nodes: Sequence[ir.Node], alone: Effect, without: Effect) -> NodeSensitivity:
        last = nodes[-1]
        return NodeSensitivity(
            node=name_of(last),
            op_type=", ".join(node.op_type for node in nodes),
            group=tuple(name_of(node) for node in nodes),
            kind=self._plan.nodes[name_of(last)].kind.value,
            output=output_name(last),
            only_quantized=alone,
            left_float=without,
            recovered=recovered(self.quantized, without),
        )
