"""The noise that each quantized node of a plan adds at the outputs (`attribution`), ranked for people."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ....profiles.base.presentation import Presentation, Presented, Table, decibels
from ....profiles.runtime.providers import CPU
from ....profiles.samples.objects import DataLike
from ...model.graph import name_of
from ...noise.output_limits import NoiseLimits
from ...planning.plan_model import PlannedModel
from ...prepare.prepare import ModelFile
from ...search.attribution import attribute, samples_to_attribute_on


@dataclass(frozen=True)
class NodeNoise:
    """The noise of one quantized node, or of the nodes of one look-up table."""

    nodes: tuple[str, ...]  # their names; the last makes the result
    op_types: tuple[str, ...]
    kind: str  # of the node in the plan
    share: float  # of the noise of all nodes at the output that decides, each quantized alone, 0 to 1
    sqnr: float | None  # in dB, of that output with these nodes alone quantized; None where nothing differs
    is_run: bool = True  # whether they were run by themselves
    sqnr_without: float | None = None  # dB, with these and all before them in float, if that was run


@dataclass(frozen=True, repr=False)
class Sensitivities(Presented):
    """Every quantized node of a plan, ranked.

    Attributes:
        model: file name.
        samples: how many were used.
        sqnr: in dB, of the output that decides, of the model as it is written and run as a whole: the figure
            that `evaluate` tells of these samples; None where nothing differs.
        nodes: those with the most noise first.
        output: the one that decides: of those that are judged the furthest off; "" where none is.
        source: the samples in words.
        enough: the nodes that are to stay float for all outputs to hold; () where they hold, and where those
            that were tried are too few.
        sqnr_of_enough: in dB, of that output then.
        plan, profile: their files; "" for no profile.
    """

    model: str
    samples: int
    sqnr: float | None
    nodes: tuple[NodeNoise, ...]
    output: str = ""
    source: str = ""
    enough: tuple[str, ...] = ()
    sqnr_of_enough: float | None = None
    plan: str = ""
    profile: str = ""

    @property
    def remedy(self) -> tuple[str, ...]:
        """The options of `qprof quantize` with which all outputs hold; () for none."""
        return tuple(word for name in self.enough for word in ("--keep-float", name))

    @property
    def advice(self) -> str:
        """The remedy in words, with its gain, or ""."""
        if not self.enough:
            return ""
        after = self.sqnr_of_enough
        brings = "no difference is left" if after is None else f"{after:.1f} dB"
        return f"{shlex.join(self.remedy)}: {brings} (measured)"

    def headline(self) -> str:
        """Return model and plan, how many nodes were ranked on which samples, and the SQNR of them all."""
        nodes = "node" if len(self.nodes) == 1 else "nodes"
        where = f" at output '{self.output}'" if self.output else ""
        return (
            f"{self.model}, {self.plan}: {len(self.nodes)} quantized {nodes}, {self.source}; all quantized: "
            f"SQNR {decibels(self.sqnr)} dB{where}"
        )

    def presentation(self) -> Presentation:
        """Return a table of the nodes, in their order; "~" marks those whose noise is estimated."""
        tried = sum(node.sqnr_without is not None for node in self.nodes)
        of_float = ("dB, it and all above float",) if tried else ()
        header = ("node", "operator", "kind", "noise", "dB, only this int8", *of_float)
        rows = tuple(
            (
                *(node.nodes[-1], ", ".join(node.op_types), node.kind),
                f"{'' if node.is_run else '~'}{100.0 * node.share:.1f} %",
                f"{'' if node.is_run else '~'}{decibels(node.sqnr)}",
                *([decibels(node.sqnr_without) if at < tried else ""] if tried else []),
            )
            for at, node in enumerate(self.nodes)
        )
        facts = (("outputs hold with", self.advice),) if self.advice else ()
        return Presentation(facts, (Table(header, rows, left=3),))


def sensitivity_of(
    model: ModelFile,
    planned: PlannedModel,
    data: DataLike,
    *,
    limits: NoiseLimits | None = None,
    limit: int | None = None,
    provider: str = CPU,
) -> Sensitivities:
    """Attribute the noise of a plan to its nodes."""
    samples = samples_to_attribute_on(model.path, planned, data, limit, provider=provider, notes=True)
    found = attribute(planned, samples, limits, provider=provider)
    op_types = {name_of(node): node.op_type for node in planned.model.graph.all_nodes()}
    without = [noises[found.output].sqnr if found.output in noises else None for noises in found.kept]
    without += [None] * (len(found.nodes) - len(without))
    return Sensitivities(
        model=planned.plan.model.file,
        samples=len(samples.samples),
        sqnr=found.sqnr,
        nodes=tuple(
            NodeNoise(
                nodes=node.nodes,
                op_types=tuple(op_types[name] for name in node.nodes),
                kind=planned.plan.nodes[node.name].kind.value,
                share=share,
                sqnr=node.noises[found.output].sqnr if found.output in node.noises else None,
                is_run=node.is_run,
                sqnr_without=sqnr_without,
            )
            for node, share, sqnr_without in zip(found.nodes, found.shares(), without, strict=True)
        ),
        output=found.output,
        source=found.samples,
        enough=found.enough,
        sqnr_of_enough=found.held[found.output].sqnr if found.output in found.held else None,
    )
