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
for each variant it took 0.4 to 0.6 of the time (89 and 79 nodes, 2 to 8 samples), and 0.08 of a model with
90 MB of weights (49 nodes). The two agree up to noise: where a sum lies midway between two integers,
its last bit decides, and in a plan with all other nodes quantized such a step is another draw of the same
noise.

An output of a float Softmax is measured at the Softmax's input: probabilities near 0 and 1 hide the noise of
a whole network until an answer changes, and then only show how many did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.base.findings import Finding, listed
from ...profiles.base.presentation import Presentation, Presented, Table, decibels
from ...profiles.base.tool import Progress
from ...profiles.runtime.providers import check_provider
from ...profiles.samples.values import Sample
from ..evaluation.compare import ClassAxis, OutputResult, OutputSums, class_axes
from ..model.graph import name_of, output_name
from ..noise.estimate_check import EstimateCheck, check_estimates, expected_sqnr, too_good
from ..noise.mask_fillers import Rows, filler_rows, fillers_as_infinities
from ..operators.facts import Classes
from ..operators.table import rule_of
from ..plan.plan import Kind, QuantPlan
from .submodels import (
    SampleWalk,
    left_float,
    node_groups,
    only_quantized,
    segment_ends,
    splittable_model,
)

DEFAULT_SAMPLES = 8
"""Samples that are used when no number is given: all of them are in memory at once."""

MIN_RECOVERED_DB, MAX_SUGGESTED = 0.5, 5
"""Least recovery (dB) of a node that is suggested to be kept float, and the most nodes that are suggested."""


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
    def findings(self) -> tuple[Finding, ...]:
        """A finding on each estimate that was too good."""
        return too_good(self.estimates)

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
        facts += listed(self.findings)
        return Presentation(tuple(facts), (Table(header, rows, left=3),))

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Names of the nodes to try as `--keep-float`: those that recover most, each measured by itself."""
        worth = [n for n in self.nodes if n.recovered is not None and n.recovered >= MIN_RECOVERED_DB]
        best = sorted(worth, key=lambda n: -(n.recovered or 0.0))[:MAX_SUGGESTED]
        return tuple(dict.fromkeys(name for node in best for name in node.group))


def sensitivity_of(
    model: ir.Model,
    plan: QuantPlan,
    samples: Sequence[Sample],
    *,
    threads: int = 0,
    class_axis: int | None = None,
    provider: str = "cpu",
    progress: Progress | None = None,
) -> Sensitivities:
    """Measure how sensitive the outputs of a planned model are to every quantized node.

    Args:
        model: the planned model.
        plan: its plan.
        samples: inputs of the model.
        threads: inside an operator; 0 for all cores.
        class_axis: axis of the classes of the first output; None for what its operator says (`class_axes`).
        provider: execution provider of onnxruntime that runs the models, in full or short.
        progress: called after each node with how many runs of a sample are done, and how many there will be.

    Raises:
        DataError: there are no samples. ModelError: a submodel cannot be run.
    """
    if not samples:
        raise DataError("sensitivity: no samples; there is nothing to measure on")
    provider = check_provider(provider)
    axes = compared_tensors(model, plan, class_axis)
    compared = tuple(axes)
    source = splittable_model(model, compared)
    count = len(source.nodes)
    in_float, in_integers = (
        SampleWalk(source, samples, base, threads, provider=provider) for base in (None, plan)
    )
    values = [value for node in source.nodes for value in node.outputs if name_of(value) in axes]
    found = ((name_of(value), filler_rows(value)) for value in values)
    rows_of = {name: rows for name, rows in found if rows is not None}

    # Both whole models; outputs that are not compared themselves too, for their estimates.
    others = [name_of(v) for v in model.graph.outputs if v.name not in axes]
    axes_of_all = {**axes, **dict.fromkeys(others, ClassAxis())}
    names_of_all = tuple(axes_of_all)
    float_outputs = list(in_float.outputs(0, count, None, names_of_all))
    quantized_outputs = in_integers.outputs(0, count, plan, names_of_all)
    results = _results(axes_of_all, float_outputs, quantized_outputs, rows_of)
    whole = effect_of(results[: len(compared)])
    sqnr = {result.name: result.difference.sqnr for result in results if result.difference}
    float_outputs = [arrays[: len(compared)] for arrays in float_outputs]

    # Both variants of each node.
    nodes: list[NodeSensitivity] = []
    groups = node_groups(source.nodes, plan)
    ends = segment_ends([group.places for group in groups], count)
    for group, end in zip(groups, ends, strict=True):
        members, names = group.nodes, group.names
        alone = in_float.outputs(group.first, end, only_quantized(plan, names), compared)
        without = in_integers.outputs(group.first, end, left_float(plan, names), compared)
        this_left_float = effect_of(_results(axes, float_outputs, without, rows_of))
        nodes.append(
            NodeSensitivity(
                node=names[-1],
                op_type=", ".join(node.op_type for node in members),
                group=names,
                kind=plan.nodes[names[-1]].kind.value,
                output=output_name(members[-1]),
                only_quantized=effect_of(_results(axes, float_outputs, alone, rows_of)),
                left_float=this_left_float,
                recovered=recovered(whole, this_left_float),
            )
        )
        if progress is not None:
            progress(2 * len(samples) * len(nodes), 2 * len(samples) * len(groups))

    def order(node: NodeSensitivity) -> tuple[float, float]:
        """Without float outputs the share of equal answers decides."""
        worst, agreement = node.only_quantized.worst_sqnr, node.only_quantized.agreement
        return (math.inf if worst is None else worst, 1.0 if agreement is None else agreement)

    expected = expected_sqnr(plan.origin.estimated_sqnr, plan.origin.sqnr_bands)
    return Sensitivities(
        model=plan.model.file,
        samples=len(samples),
        quantized=whole,
        nodes=tuple(sorted(nodes, key=order)),
        estimates=check_estimates(expected, sqnr),
    )


def compared_tensors(model: ir.Model, plan: QuantPlan, class_axis: int | None) -> dict[str, ClassAxis]:
    """Return the graph outputs, with the output of a float Softmax or LogSoftmax replaced by its input, and
    where each has its classes; those of the first along `class_axis`, if that is given."""
    axes = class_axes(model, None if class_axis is None else name_of(model.graph.outputs[0]), class_axis)
    compared: dict[str, ClassAxis] = {}
    for value in model.graph.outputs:
        node, tensor = value.producer(), value
        rule = None if node is None else rule_of(node)
        if node is not None and rule is not None and rule.classes is Classes.COMPETE:
            logits = node.inputs[0]
            if logits is not None and plan.nodes[name_of(node)].kind is Kind.FLOAT:
                tensor = logits
        compared.setdefault(name_of(tensor), axes[name_of(value)])
    return compared


def _results(
    axes: Mapping[str, ClassAxis],
    float_outputs: Iterable[list[Any]],
    outputs: Iterable[list[Any]],
    rows_of: Mapping[str, Rows],
) -> list[OutputResult]:
    """Compare tensors over all samples; where `filler_rows` has `rows_of` one, fillers are passed over."""
    sums = [OutputSums(axis) for axis in axes.values()]
    for expected, actual in zip(float_outputs, outputs, strict=True):
        pairs = (
            fillers_as_infinities(f, q, rows_of[name]) if name in rows_of and f.shape == q.shape else (f, q)
            for name, f, q in zip(axes, expected, actual, strict=True)
        )
        sums = [s.added(*pair) for s, pair in zip(sums, pairs, strict=True)]
    return [s.result(name) for s, name in zip(sums, axes, strict=True)]


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


def recovered(quantized: Effect, with_float: Effect) -> float | None:
    """Return by how many dB the worst output is better with a node kept float than under the whole plan."""
    before, after = quantized.worst_sqnr, with_float.worst_sqnr
    if before is None or after is None or before == after:
        return None if before is None else 0.0
    return None if math.isnan(after - before) else after - before
