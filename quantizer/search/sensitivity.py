"""How much of the noise at the outputs each quantized node of a plan adds: the ranking of the search, as a
result for people (`ranking`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...profiles.base.presentation import Presentation, Presented, Table, decibels
from ...profiles.records.profile import DataId, Profile
from ...profiles.runtime.providers import CPU
from ...profiles.samples.objects import DataLike
from ..evaluation.compare import class_axes
from ..evaluation.metrics.metric import Outputs
from ..evaluation.metrics.relative import noise_share
from ..evaluation.output_shift import noise_of_outputs
from ..evaluation.runtimes import open_session
from ..model.graph import name_of
from ..noise.output_limits import noise_limits
from ..planning.plan_model import PlannedModel
from ..prepare.prepare import ModelFile
from .closed_loop import shifts_of
from .options import TuningData
from .ranking import ranked_nodes
from .tuning_data import read_samples

SAME = 300.0
"""SQNR in dB of outputs that do not differ."""

DEFAULT_SAMPLES = 8
"""Samples that are used when no number is given: all of them are in memory at once."""


@dataclass(frozen=True)
class NodeNoise:
    """The noise of one quantized node, or of the nodes of one look-up table.

    Attributes:
        nodes: their names; the last makes the result.
        op_types: their operators.
        kind: of the node in the plan.
        share: of the noise of all nodes, each quantized alone, 0 to 1.
        sqnr: in dB, of the worst output that is judged with these nodes alone quantized; None where nothing
            differs.
        microseconds: by which float is predicted to take longer here, conversions included; None where the
            target's kernel times are not known.
    """

    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    kind: str
    share: float
    sqnr: float | None
    microseconds: float | None


@dataclass(frozen=True, repr=False)
class Sensitivities(Presented):
    """Every quantized node of a plan, ranked.

    Attributes:
        model: file name.
        samples: how many were used.
        sqnr: in dB, of the worst output that is judged, of the model as it is written and run as a whole, as
            `quantize` tells it of check samples; None where nothing differs.
        nodes: those with the most noise first.
    """

    model: str
    samples: int
    sqnr: float | None
    nodes: tuple[NodeNoise, ...]

    def headline(self) -> str:
        """Return the model, the number of quantized nodes, and the SQNR of the whole plan."""
        return f"{self.model}, {len(self.nodes)} quantized nodes, {decibels(self.sqnr)} dB together"

    def presentation(self) -> Presentation:
        """Return a table of the nodes, in their order."""
        header = ("node", "operator", "kind", "share of the noise, %", "quantized alone, dB", "saves, us")
        rows = tuple(
            (
                node.nodes[-1],
                ", ".join(node.op_types),
                node.kind,
                f"{100.0 * node.share:.1f}",
                decibels(node.sqnr),
                "-" if node.microseconds is None else f"{node.microseconds:.0f}",
            )
            for node in self.nodes
        )
        return Presentation((("samples", str(self.samples)),), (Table(header, rows, left=3),))


def sensitivity_of(
    model: ModelFile,
    planned: PlannedModel,
    data: DataLike,
    *,
    limit: int = DEFAULT_SAMPLES,
    provider: str = CPU,
) -> Sensitivities:
    """Measure the noise of every quantized node of a plan.

    Args:
        model: the float model.
        planned: the plan, with the model that it is lowered from.
        data: samples, of which the first are run.
        limit: most of them.
        provider: full name of the execution provider that runs all models.

    Raises:
        DataError: there are no samples. ModelError: a model cannot be run.
    """
    session = open_session(str(model), model.name, provider=provider)
    samples = read_samples(session, planned.model, TuningData(data, limit=limit))
    axes, facts = class_axes(planned.model), planned.facts
    unprofiled = Profile(planned.plan.model, DataId(), {})
    limits = (
        noise_limits(planned.graph, unprofiled, planned.plan.config) if facts is None else facts.noise_limits
    )
    inputs = [sample.arrays for sample in samples.samples]

    def noise_of(floats: Sequence[Outputs], quantized: Sequence[Outputs]) -> float:
        """Return the noise over signal of the worst output that is judged; of indices those that differ."""
        noise = noise_of_outputs(floats, quantized, limits, axes, inputs[: len(floats)])
        return noise_share(floats, quantized, axes) if noise is None else noise

    ranked = ranked_nodes(planned, samples, most=limit, provider=provider, noise=noise_of)

    # The whole plan as quantize runs it, and by the same figure.
    shifts = shifts_of(planned, limits, samples, provider)
    figures = [shift.sqnr for shift in shifts if not math.isnan(shift.sqnr)]

    op_types = {name_of(node): node.op_type for node in planned.model.graph.all_nodes()}
    total = sum(one.noise for one in ranked)
    timed = planned.facts is not None and planned.facts.cost_model is not None
    return Sensitivities(
        model=planned.plan.model.file,
        samples=len(samples.samples),
        sqnr=min(figures) if figures and min(figures) < SAME else None,
        nodes=tuple(
            NodeNoise(
                nodes=one.nodes,
                op_types=tuple(op_types[name] for name in one.nodes),
                kind=planned.plan.nodes[one.nodes[-1]].kind.value,
                share=one.noise / total if total else 0.0,
                sqnr=_decibels(one.noise),
                microseconds=one.microseconds if timed else None,
            )
            for one in sorted(ranked, key=lambda one: -one.noise)
        ),
    )


def _decibels(noise: float) -> float | None:
    """Return an SQNR in dB of noise over signal, None where there is none of it."""
    return -10.0 * math.log10(noise) if noise > 0.0 else None
