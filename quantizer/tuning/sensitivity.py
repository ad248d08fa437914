"""What each quantized node costs at the outputs: quantized alone, and left float alone.

Both need a run of a model of its own for each node, and a session for each is what makes such analyses slow:
on a model of 100 quantized nodes, 200 sessions and 200 whole runs of each sample. Here the samples walk
through the graph together, once. At each node the arrays that are alive are known twice, as the float model
and as the quantized model has them, so nothing before the node is computed again:

- *alone*: from the float arrays, the node under the plan and what follows in float;
- *without*: from the quantized arrays, the node in float and what follows under the plan.

What follows is run in two parts, so that few large sessions are made: a small piece from the node to the end
of its segment (there are about sqrt(nodes) segments), and then a session over all later segments that every
node of the segment shares. Each part is lowered and optimised as the model itself is, with its integer
kernels and fusions, so no switch slows it down and no noise is only simulated. It comes to about half a run
of each model for each node and sample. The alternatives were weighed: a switch on every tensor of one session
(an If or Where on a boolean input) runs the whole model each time, unfused, with both forms of every tensor;
adding up noise that was measured node by node in one run says nothing of what becomes of it further on.
Against a session for each variant it took 0.4 to 0.6 of the time (89 and 79 nodes, 2 to 8 samples). The two
agree as far as noise does: where a sum lands between two codes, its last bit decides, and in a plan with all
other nodes quantized such a step is another draw of the same noise.

An output that a float Softmax makes is judged at the Softmax's input: probabilities near 0 and 1 hide the
noise of a whole network until an answer changes, and then they tell little but how many did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...profiles.base.errors import DataError, PlanError
from ...profiles.samples.samples import Sample, input_specs, open_samples
from ..evaluation.outputs import OutputResult, OutputSums
from ..plan.plan import Kind, QuantPlan
from ..plan.store import load_plan
from ..planning.chains import planned_chains
from ..planning.plan_model import open_plan, plan_model
from ..prepare.opening import open_prepared, read_profile
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .submodels import Cuttable, Values, cuttable, only, open_piece, without

LIMIT = 8
"""Samples that are used when no number is given: all of them are in memory at once."""


@dataclass(frozen=True)
class Effect:
    """What one variant of the model does to the outputs.

    Attributes:
        sqnr: signal over noise of each float output in dB, by name (of a Softmax's input, where that is
            judged in the output's place); inf where nothing differs.
        worst: the lowest of them; None without float outputs.
        worst_group: the lowest of any group of channels that have a range of their own.
        agreement: lowest share of equal answers (top-1, or equal elements) of any output; None where there
            are none.
    """

    sqnr: Mapping[str, float]
    worst: float | None
    worst_group: float | None
    agreement: float | None


@dataclass(frozen=True)
class NodeSensitivity:
    """What one quantized node costs, or one table of several nodes.

    Attributes:
        node, op_type: the node; of a table the last, and the operators of all.
        kind: what the plan makes of it.
        output: its first output.
        alone: the outputs when only this node is quantized.
        without: the outputs when all quantized nodes but this one are.
        gain: dB of the worst output that leaving it float gives back; below 0 where it costs. None where that
            output is missing or equal in both.
    """

    node: str
    op_type: str
    kind: str
    output: str
    alone: Effect
    without: Effect
    gain: float | None


@dataclass(frozen=True)
class Sensitivities:
    """Every quantized node of a plan, ranked.

    Attributes:
        model: file name.
        samples: how many were used.
        quantized: the outputs of the whole plan.
        nodes: the node that costs most when it is quantized alone first; equals in graph order.
    """

    model: str
    samples: int
    quantized: Effect
    nodes: tuple[NodeSensitivity, ...]


def sensitivity(
    model_path: str | Path,
    profile_path: str | Path | None,
    data: str | Path,
    *,
    recipe: Recipe | None = None,
    plan_path: str | Path | None = None,
    limit: int | None = LIMIT,
    threads: int = 0,
    progress: Callable[[int, int | None], None] | None = None,
) -> Sensitivities:
    """Measure what every quantized node costs at the outputs.

    Args:
        model_path: float ONNX model.
        profile_path: its profile; not needed with `plan_path`.
        data: folder of samples, or "module:function" for a Python iterable of feeds.
        recipe: settings and target; None for the default target's.
        plan_path: a saved plan to measure instead of the one that the recipe gives.
        limit: the first so many samples, which are held in memory; None for all.
        threads: inside an operator; 0 for all cores.
        progress: called after each node with how many feeds were run, and how many runs there will be.

    Raises:
        ModelError, ProfileError, PlanError, ConfigError, DataError: what is wrong, where, and what to do.
    """
    prepared = open_prepared(model_path)
    if plan_path is not None:
        planned = open_plan(prepared, load_plan(plan_path), str(plan_path))
    elif profile_path is not None:
        profile = read_profile(profile_path, prepared.model, prepared.identity)
        planned = plan_model(prepared, profile, recipe or load_recipe())
    else:
        raise PlanError(f"{model_path}: a profile or a plan is needed; make one with qprof dump-profile")
    samples = list(open_samples(str(data), input_specs(prepared.model), limit))
    return sensitivity_of(planned.model, planned.plan, samples, threads, progress)


def sensitivity_of(
    model: ir.Model,
    plan: QuantPlan,
    samples: Sequence[Sample],
    threads: int = 0,
    progress: Callable[[int, int | None], None] | None = None,
) -> Sensitivities:
    """Measure what every quantized node of a planned model (`planning`) costs; see `sensitivity`.

    Raises:
        DataError: there are no samples. ModelError: a part of the model cannot be run.
    """
    if not samples:
        raise DataError("sensitivity: no samples; there is nothing to measure on")
    names = judged_tensors(model, plan)
    source = cuttable(model, names)
    count = len(source.nodes)
    units = _units(source, plan)
    wanted = list(units)
    start = _Walk(source, samples, threads)
    floats = list(start.outputs(names, open_piece(source, 0, count, None, threads)))
    whole = _effect(names, floats, start.outputs(names, open_piece(source, 0, count, plan, threads)))
    real, coded = _Walk(source, samples, threads), _Walk(source, samples, threads)
    found = []
    for begin, end in segments(wanted, count, [max(unit) for unit in units.values()]):
        after = (open_piece(source, end, count, None, threads), open_piece(source, end, count, plan, threads))
        for index in (i for i in wanted if begin <= i < end):
            real.advance(index, None)
            coded.advance(index, plan)
            nodes = [source.nodes[i] for i in units[index]]
            unit, name = [node.name or "" for node in nodes], nodes[-1].name or ""
            alone = open_piece(source, index, end, only(plan, unit), threads)
            spared = open_piece(source, index, end, without(plan, unit), threads)
            effects = (
                _effect(names, floats, real.outputs(names, alone, after[0])),
                _effect(names, floats, coded.outputs(names, spared, after[1])),
            )
            kind, output = plan.nodes[name].kind.value, nodes[-1].outputs[0].name or ""
            ops = ", ".join(node.op_type for node in nodes)
            found.append(NodeSensitivity(name, ops, kind, output, *effects, gain(whole, effects[1])))
            if progress is not None:
                progress(2 * len(samples) * len(found), 2 * len(samples) * len(wanted))
    return Sensitivities(plan.model.file, len(samples), whole, ranked(found))


def judged_tensors(model: ir.Model, plan: QuantPlan) -> list[str]:
    """Return the graph outputs, each float Softmax or LogSoftmax among their makers replaced by its input."""
    found = []
    for value in model.graph.outputs:
        node = value.producer()
        source = None
        if node is not None and node.op_type in ("Softmax", "LogSoftmax"):
            source = node.inputs[0] if plan.nodes[node.name or ""].kind is Kind.FLOAT else None
        found.append(str(value.name if source is None else source.name))
    return list(dict.fromkeys(found))


def _units(source: Cuttable, plan: QuantPlan) -> dict[int, tuple[int, ...]]:
    """Return the nodes that are measured together, the one that makes the result last, by the first of them.

    Those of one table are; every other node is a unit of its own.
    """
    places = {node: index for index, node in enumerate(source.nodes)}
    tables = planned_chains(source.nodes, plan)
    units = [
        tuple(places[part] for part in tables.get(node.name or "", (node,)))
        for node in source.nodes
        if plan.nodes[node.name or ""].kind is not Kind.FLOAT
        and not plan.is_part(node.name or "", node.outputs[0].name or "")
    ]
    return {min(unit): unit for unit in sorted(units, key=min)}


def segments(
    wanted: Sequence[int], count: int, last: Sequence[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of segments with about sqrt(n) of the n wanted nodes each, covering all `count`.

    Nothing is cut between a wanted node and the `last` one that belongs to it (by default itself). With s
    segments 2s large sessions are made, and n small ones of n / s nodes: the sum is least at sqrt(n).
    """
    step = max(1, math.isqrt(len(wanted)))
    spans = list(zip(wanted, last or wanted, strict=True))
    free = [cut for cut in wanted[step::step] if not any(start < cut <= end for start, end in spans)]
    return tuple(pairwise([0, *free, count]))


def ranked(nodes: Sequence[NodeSensitivity]) -> tuple[NodeSensitivity, ...]:
    """Return the nodes, the one with the lowest signal over noise when quantized alone first.

    Without float outputs the share of equal answers decides.
    """

    def cost(node: NodeSensitivity) -> tuple[float, float]:
        worst, agreement = node.alone.worst, node.alone.agreement
        return (math.inf if worst is None else worst, 1.0 if agreement is None else agreement)

    return tuple(sorted(nodes, key=cost))


def gain(whole: Effect, spared: Effect) -> float | None:
    """Return the dB of the worst output that a variant gives back."""
    if whole.worst is None or spared.worst is None or whole.worst == spared.worst:
        return None if whole.worst is None else 0.0
    difference = spared.worst - whole.worst
    return None if math.isnan(difference) else difference


def effect_of(results: Sequence[OutputResult]) -> Effect:
    """Return what was found about all outputs, in short."""
    sqnr = {r.name: r.difference.sqnr for r in results if r.difference is not None}
    groups = [g.difference.sqnr for r in results if r.channels is not None for g in r.channels.groups]
    ratios = [r.agreement.ratio for r in results if r.agreement is not None]
    return Effect(
        sqnr,
        min(sqnr.values(), default=None),
        min([*groups, *sqnr.values()], default=None),
        min(ratios, default=None),
    )


def _effect(names: Sequence[str], floats: Iterable[list[Any]], variant: Iterable[list[Any]]) -> Effect:
    sums = [OutputSums() for _ in names]
    for mine, theirs in zip(floats, variant, strict=True):
        sums = [s.added(f, q) for s, f, q in zip(sums, mine, theirs, strict=True)]
    return effect_of([s.result(name) for s, name in zip(sums, names, strict=True)])


class _Walk:
    """Samples on their way through the graph: for each, the arrays that are alive where it stands."""

    def __init__(self, source: Cuttable, samples: Sequence[Sample], threads: int) -> None:
        self._source, self._threads = source, threads
        self._names = [sample.name for sample in samples]
        self._alive: list[dict[str, Any]] = [dict(sample.feed) for sample in samples]
        self._at = 0

    def advance(self, index: int, plan: QuantPlan | None) -> None:
        """Go on to the node with an index."""
        if index == self._at:
            return
        step = open_piece(self._source, self._at, index, plan, self._threads)
        last = self._source.last
        self._alive = [
            {n: v for n, v in {**values, **step(values, name)}.items() if last.get(n, -1) >= index}
            for values, name in zip(self._alive, self._names, strict=True)
        ]
        self._at = index

    def outputs(
        self, wanted: Sequence[str], *parts: Callable[[Values, str], Mapping[str, Any]]
    ) -> Iterator[list[Any]]:
        """Yield the graph outputs of each sample after the parts were run from here, one after the other."""
        graph = self._source.model.graph
        constants = {str(v.name): v.const_value.numpy() for v in graph.outputs if v.const_value is not None}
        for alive, name in zip(self._alive, self._names, strict=True):
            values = {**constants, **alive}
            for part in parts:
                values |= part(values, name)
            yield [values[n] for n in wanted]
