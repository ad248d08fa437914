"""The noise of each output of a plan's model, attributed to the quantized nodes that add it: run on samples.

This is the only attribution of noise to layers. The cause of a verdict, the noise budget of a report and
`qprof compare-layers` print it.

    whole    the plan's model is run like in `evaluate`: each step reads the state of the previous one
    groups   one group of neighbours at a time is quantized and run (`ranking`); the worst is split, until
             it is a single node or adds little; in the other groups the estimate distributes the noise

Noise is the figure of an output over its limit (`output_shift`), squared, as in the verdict. Noises do not
add up if nodes round the same values, or if one saturates the result of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...profiles.base.errors import shown
from ...profiles.base.findings import Code, Finding
from ...profiles.base.seconds import clocked
from ...profiles.runtime.providers import CPU
from ...profiles.runtime.states import model_samples
from ...profiles.samples.objects import DataLike
from ..evaluation.metrics.metric import Outputs
from ..evaluation.metrics.relative import noise_share
from ..evaluation.output_shift import SCORES_DB, JudgedSamples, output_shifts
from ..evaluation.runtimes import open_model, open_session
from ..lowering.lower import lower
from ..noise.output_limits import NoiseLimits, meanings_in_plan, noise_limits
from ..noise.output_profile import profile_of_outputs
from ..operators.graph import Graph
from ..planning.plan_model import PlannedModel
from ..targets.machine import runs_here
from .ranking import NodesAlone, estimated_shares, measured_groups, shared_out
from .run_samples import RunSamples, run_samples, samples_in_memory

SAMPLES = 8
"""Default number of samples for attribution: all are in memory at once."""

STEPS = 256
"""Steps of sequences: recordings begin with silence, and errors of a state accumulate."""

MOST_STEP_ELEMENTS = 2**27
"""Elements of all activations in these steps: more are as long in coming as the samples of a larger model."""

ALIKE = 0.8
"""Noise over that of another node from which both are alike: 1 dB."""

LEAST_PERCENT = 25.0
"""Of the noise, from which on one node is its cause."""

LARGEST = 1e12
"""Noise above which it is not told from more."""


@dataclass(frozen=True)
class OutputNoise:
    """The noise of one output."""

    figure: float  # of the output over its limit, squared
    share: float  # of its signal

    @property
    def sqnr(self) -> float | None:
        """SQNR in dB, or None if nothing differs."""
        return -10.0 * math.log10(self.share) if self.share > 1e-30 else None

    def part(self, of: float) -> OutputNoise:
        """Return a part of it."""
        return OutputNoise(of * self.figure, of * self.share)


Noises = Mapping[str, OutputNoise]
"""The noise of the judged outputs, by name; "" for all outputs of a model without a judged one."""


@dataclass(frozen=True)
class AttributedNode:
    """The noise of a node, or of the nodes of one look-up table, if nothing else is quantized."""

    nodes: tuple[str, ...]  # the last makes the result
    noises: Noises  # by output
    is_run: bool  # by themselves; else the estimate shares out the noise of a group

    @property
    def name(self) -> str:
        """The node that makes the result."""
        return self.nodes[-1]


@dataclass(frozen=True)
class Attribution:
    """The noise of the outputs of a plan's model, and the nodes that add it."""

    whole: Noises  # of the model, by output
    nodes: tuple[AttributedNode, ...]  # with the most noise at `output` first
    samples: str  # on which it was run, in words

    @cached_property
    def output(self) -> str:
        """The output that decides: that which is the furthest off."""
        return max(self.whole, key=lambda name: (self.whole[name].figure, self.whole[name].share), default="")

    def powers(self, output: str) -> list[float]:
        """Return the noise of each node at an output; if no figure moves, noise over signal."""
        figures = [node.noises[output].figure if output in node.noises else 0.0 for node in self.nodes]
        if any(figures):
            return figures
        return [node.noises[output].share if output in node.noises else 0.0 for node in self.nodes]

    def shares(self, output: str | None = None) -> list[float]:
        """Return each node's fraction of the noise of all, each quantized separately; 0 without noise."""
        powers = self.powers(self.output if output is None else output)
        total = sum(powers)
        return [power / total if total > 0.0 else 0.0 for power in powers]

    @property
    def cause(self) -> tuple[Finding, ...]:
        """The finding on the node that adds most noise, or that no node adds much of it; () without noise."""
        if not any(self.powers(self.output)):
            return ()
        worst, percent = self.nodes[0], 100.0 * self.shares()[0]
        if percent < LEAST_PERCENT or not worst.is_run:
            sentence = f"no single layer adds {LEAST_PERCENT:.0f} % of the noise, run on {self.samples}"
            return (Finding(Code.MAIN_CAUSE, sentence),)
        sentence = f"{shown(worst.name, 60)} adds {percent:.0f} % of the noise, run on {self.samples}"
        return (Finding(Code.MAIN_CAUSE, sentence, worst.name, {"percent": percent}),)


@clocked("rank")
def attribute(
    planned: PlannedModel,
    samples: RunSamples,
    limits: NoiseLimits | None = None,
    *,
    provider: str = CPU,
    seconds: float = math.inf,
) -> Attribution:
    """Attribute the noise of a plan's outputs to its nodes.

    It is run on all samples, or the first ones that fit into `seconds` of processor; without one, no node is.
    Raises ModelError if the plan's model cannot be run.
    """
    alone = NodesAlone(planned, samples, provider)
    most = alone.samples_within(seconds) if seconds < math.inf else len(samples.samples)
    samples = samples.subset(range(max(1, most))[: len(samples.samples)])
    noises = _measuring(samples, limits or limits_of(planned, samples))
    outputs: Sequence[Outputs] = samples.quantized
    if not outputs:
        name, dequantized = "quantized model", not runs_here(planned.plan.config.target, provider=provider)
        whole = lower(planned.model, planned.plan).model
        outputs = samples.outputs(open_model(whole, name, provider=provider, dequantized=dequantized), name)
    first = noises(outputs)
    count = len(samples.samples)
    measured = measured_groups(
        alone.units if most else (),
        lambda groups: {group: noises(outputs) for group, outputs in alone.outputs(groups, count)},
        lambda of_group: _power(of_group, first),
        cause=LEAST_PERCENT / 100.0,
    )
    estimated = estimated_shares(planned)
    nodes = []
    for group, of_group in measured.items():
        for unit, part in zip(group, shared_out(1.0, group, estimated), strict=True):
            own = {name: noise.part(part) for name, noise in of_group.items()}
            nodes.append(AttributedNode(unit, own, len(group) == 1))
    places = {unit: place for place, unit in enumerate(alone.units)}
    nodes.sort(key=lambda node: places[node.nodes])
    found = Attribution(first, tuple(nodes), samples_text(samples))
    return replace(found, nodes=_worst_first(found, planned.graph))


def _measuring(samples: RunSamples, limits: NoiseLimits) -> Callable[[Sequence[Outputs] | None], Noises]:
    """Return a function that takes the noise at each output from the outputs of a model on some samples."""
    axes, floats = limits.classes, samples.float_outputs
    inputs = [sample.arrays for sample in samples.samples]

    def noises(quantized: Sequence[Outputs] | None) -> Noises:
        """Return the noise at each output; nothing of a model that cannot be run."""
        if quantized is None:
            return {}
        found = {
            shift.output: OutputNoise(min(shift.ratio, LARGEST) ** 2, _share(shift.sqnr))
            for shift in output_shifts(floats, quantized, limits, inputs)
            if not shift.incomparable
        }
        for name, noise in found.items():  # boxes that are lost move no score
            if limits.kinds.get(name) == "detections":
                one, other = ([{name: outputs[name]} for outputs in side] for side in (floats, quantized))
                worst = noise_share(one, other, axes) * 10.0 ** (SCORES_DB / 10.0)
                found[name] = replace(noise, figure=max(noise.figure, min(worst, LARGEST)))
        if not found:
            share = min(noise_share(floats, quantized, axes), LARGEST)
            found = {"": OutputNoise(share, share)}
        return found

    return noises


def _power(noises: Noises, whole: Noises) -> float:
    """Return the noise of a group at the deciding output; a small part of its signal counts as noise."""
    deciding = max(whole, key=lambda name: (whole[name].figure, whole[name].share), default="")
    own = noises.get(deciding, OutputNoise(0.0, 0.0))
    return own.figure or 1e-9 * own.share


def _share(sqnr: float | None) -> float:
    if sqnr is None:
        return 0.0
    return LARGEST if sqnr == -math.inf else min(10.0 ** (-sqnr / 10.0), LARGEST)


def _worst_first(found: Attribution, graph: Graph) -> tuple[AttributedNode, ...]:
    """Return the nodes, given in graph order, the most noise first; of equal ones the producer first."""
    powers = found.powers(found.output)
    order = sorted(range(len(powers)), key=lambda place: (-powers[place], place))
    if not order or not powers[order[0]] > 0.0:
        return tuple(found.nodes[place] for place in order)

    def tensors(node: AttributedNode) -> tuple[set[str], set[str]]:
        own = [graph.node(name) for name in node.nodes]
        made = {name for one in own for name in one.results}
        return made, {name for one in own for name in one.inputs if name and not graph.is_constant(name)}

    named, least = order[0], ALIKE * powers[order[0]]
    for place in sorted((p for p in order if powers[p] >= least and p < named), reverse=True):
        made, read = tensors(found.nodes[place])
        if tensors(found.nodes[named])[1] & (made | read):
            named = place
    order.remove(named)
    return tuple(found.nodes[place] for place in (named, *order))


def limits_of(planned: PlannedModel, samples: RunSamples) -> NoiseLimits:
    """Return the limits of a plan's outputs: those of its facts, or of its outputs on samples."""
    plan = planned.plan
    if planned.facts is not None:
        return planned.facts.noise_limits
    profile = profile_of_outputs(planned.model, planned.graph, plan.model, samples.samples)
    return noise_limits(planned.graph, replace(profile, outputs=meanings_in_plan(plan.findings)), plan.config)


def samples_to_attribute_on(
    model: Path | JudgedSamples,
    planned: PlannedModel,
    data: DataLike,
    limit: int | None = None,
    *,
    provider: str = CPU,
) -> RunSamples:
    """Return at most `SAMPLES`, or `STEPS` of sequences, with the float outputs, or as they were judged."""
    state = model_samples(data, planned.model, notes=False).state
    if limit is None:
        limit = SAMPLES if not state else _steps(planned)
    if isinstance(model, JudgedSamples):
        of_float, of_plan = tuple(model.floats[:limit]), tuple(model.quantized[:limit])
        samples = samples_in_memory(planned.model, data, len(of_float), notes=False)
        return RunSamples(samples, of_float, quantized=of_plan, state=state)
    session = open_session(str(model), model.name, provider=provider)
    return replace(run_samples(session, planned.model, data, limit), state=state)


def _steps(planned: PlannedModel) -> int:
    """Return how many steps are run: fewer of a model with many activations."""
    profile = {} if planned.facts is None else planned.facts.measured
    samples = 1 if planned.facts is None else max(1, planned.facts.measured.data.samples)
    elements = sum(tensor.count for tensor in profile.values()) / samples
    return max(SAMPLES, min(STEPS, int(MOST_STEP_ELEMENTS / max(1.0, elements))))


def samples_text(samples: RunSamples) -> str:
    """Return how many samples these are, in words."""
    count = len(samples.samples)
    if not samples.state:
        return f"{count} sample{'s'[: count != 1]}"
    return f"{count} step{'s'[: count != 1]} with each model's own state"
