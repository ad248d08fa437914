"""What a plan is worth: its objective as it is predicted, and the score of its model as it is measured.

The objectives (speed, size, share of int8) follow from a plan, and nothing is run. The score is that of a
model in a file, on as many samples as it takes to see that it misses the target.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...profiles.records.profile import Profile
from ...profiles.runtime.providers import CPU
from ..costs.predicted import CostModel, total_microseconds
from ..evaluation.compare import ClassAxis
from ..evaluation.metrics.relative import noise_share
from ..evaluation.metrics.score import Score
from ..evaluation.runtimes import open_session
from ..noise.activation_ranges import with_clip_profiles
from ..operators.graph import Graph, Node
from ..plan.plan import QuantPlan
from ..planning.plan_model import PlannedModel
from .tuning_data import ScoringSamples, outputs_of


def predicted_objective(planned: PlannedModel, objective: str, profile: Profile, float_bytes: int) -> float:
    """Return the value of an objective as it is predicted of a plan, larger is better.

    Args:
        planned: a plan with the facts that it was made from.
        objective: one of `OBJECTIVES`.
        profile: of the prepared model.
        float_bytes: size of the float model.
    """
    if objective == "size":
        return float_bytes / max(1.0, float_bytes - saved_bytes(planned.plan, planned.graph))
    facts = planned.facts
    if objective == "int8-share" or facts is None or facts.recipe.costs is None or facts.file_costs is None:
        return int8_share(planned.plan, planned.graph, profile)
    model = CostModel(planned.graph, facts.profile, facts.recipe.costs)
    total = total_microseconds(model.costs(planned.plan), planned.graph, planned.plan)
    return sum(facts.file_costs.floating.values()) / max(total, 1e-3)


def saved_bytes(plan: QuantPlan, graph: Graph) -> float:
    """Return the bytes that the quantized constants of a plan need less than in float."""
    sizes = {name: graph.shape(name) for name in plan.tensors if graph.is_constant(name)}
    return sum(
        math.prod(int(dim or 1) for dim in shape) * (4.0 - plan.tensors[name].qtype.bits / 8.0)
        for name, shape in sizes.items()
        if shape is not None
    )


def int8_share(plan: QuantPlan, graph: Graph, profile: Profile) -> float:
    """Return the share of the arithmetic that is done in integers, in [0, 1].

    A node with a constant weight counts its multiplications (elements of the output times elements of the
    weight for each output channel), a product of two activations those along the last axis of its first
    input where that is fixed, and every other node its output elements. Outputs without a profile (shapes,
    indices) count nothing.
    """
    done, total, profile = 0.0, 0.0, with_clip_profiles(profile, graph)
    for node in graph.nodes:
        name = node.output
        if name not in profile:
            continue
        work = float(profile[name].count) * multiplications(node, graph)
        total += work
        done += work if plan.nodes[node.name].kind.counts_as_quantized else 0.0
    return done / total if total else 0.0


def multiplications(node: Node, graph: Graph) -> float:
    """Return the multiplications for each element of the output."""
    rule = node.rule
    if rule is None or rule.weight is None:
        return 1.0
    weight = node.constant(rule.weight.index)
    if weight is not None:
        axis = rule.weight.axis(node, weight.ndim)
        return float(weight.size) / (1 if axis is None else weight.shape[axis])
    shape = graph.shape(node.inputs[0]) if node.inputs[0] else None
    inner = shape[-1] if shape else None
    return 1.0 if inner is None else float(np.int64(inner))


FIRST_SHARE, FEWEST = 3, 8
"""The first third of the samples are scored first, and at least 8."""

NOISE_SAMPLES = 8
"""Samples, from the first, on which the noise of the outputs is measured: it differs little between them."""

_ONE_METRIC = threading.Lock()
"""A metric of the user's own is called by one thread at a time."""


def score_model(
    path: Path, samples: ScoringSamples, threads: int = 0, side_by_side: int = 1, *, provider: str = CPU
) -> Score:
    """Return the score of the quantized model in a file on some samples.

    Args:
        path: of the model.
        samples: to score it on.
        threads: inside an operator; 0 for all cores.
        side_by_side: samples that run at the same time.
        provider: full name of the execution provider.

    Raises:
        ModelError: it cannot be run.
    """
    session = open_session(str(path), "quantized model", threads, provider=provider)
    outputs = outputs_of(session, samples.samples, "quantized model", side_by_side)
    return samples.score(outputs)


def screen_model(
    path: Path,
    samples: ScoringSamples,
    axes: Mapping[str, ClassAxis],
    max_drop: float,
    side_by_side: int = 1,
    *,
    provider: str = CPU,
) -> tuple[Score, float | None]:
    """Return the score of a quantized model, and the SQNR of the worst group of channels of its worst output.

    When the first third of the samples shows a drop whose whole 95 % interval is above `max_drop`, the others
    are not run: a plan that is to be chosen is never scored on fewer than all.

    Args:
        path: of the model; it runs on one thread, so that its sums do not depend on the cores that there are.
        samples: to score it on.
        axes: where each output has its classes.
        max_drop: percentage points.
        side_by_side: samples that run at the same time.
        provider: full name of the execution provider.

    Returns:
        The score, on all samples, or on the first where these leave no doubt; and the SQNR in dB, None where
        nothing differs.

    Raises:
        ModelError: it cannot be run. DataError: it cannot be scored.
    """
    session, count = open_session(str(path), "quantized model", provider=provider), len(samples.samples)
    first = max(FEWEST, -(-count // FIRST_SHARE))
    places = range(min(first, count))
    outputs = outputs_of(session, samples.samples[: len(places)], "quantized model", side_by_side)
    few = min(NOISE_SAMPLES, count)
    noise = noise_share(samples.float_outputs[:few], outputs[:few], axes)
    part = samples.subset(places)
    with _ONE_METRIC:
        score = part.score(outputs)
    if len(places) < count and score.drop_low <= max_drop:
        outputs += outputs_of(session, samples.samples[len(places) :], "quantized model", side_by_side)
        with _ONE_METRIC:
            score = samples.score(outputs)
    return score, rounded_sqnr(noise)


def rounded_sqnr(noise: float) -> float | None:
    """Return the SQNR in dB, to hundredths and within 300, of noise over signal; None for no noise."""
    return round(max(-300.0, -10.0 * math.log10(min(noise, 1e300))), 2) if noise > 0.0 else None
