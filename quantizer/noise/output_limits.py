"""How much quantization noise each output, and each step inside a model, can bear. Pure.

Each kind of output has a limit in dB (DECISIONS.md, 32), relative to its power or to its variation. The
setting `min_output_sqnr` overrides all: then every output has this limit relative to its power, and steps
have no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, log10

import numpy as np

from ...profiles.base.conversion import OutputKind
from ...profiles.base.errors import ConfigError, nearest
from ...profiles.base.findings import Code, Finding
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import OutputMeaning, Profile
from ..numerics.density import density, mean_of, signal_power
from ..operators.graph import Graph
from ..targets.config import OUTPUT_KINDS, QuantConfig, split_kinds
from .class_axes import ClassAxis, class_axis_of
from .output_kinds import (
    drawn_at_random,
    has_places,
    is_decision,
    makes_magnitudes,
    meanings_of,
    scores_of_index,
)
from .steps import Step, find_steps
from .value_paths import downstream, parts_of

DECISION_DB = tuned(
    15.0,
    figure=(
        "of models that lose nothing the nearest are estimated 14 to 19 dB and measured 19 to 25 "
        "(DECISIONS.md, 32)"
    ),
    chosen_on="trained models of the benchmarks",
)
"""SQNR of an output that is a decision or an embedding, over its power."""

VALUES_DB = tuned(
    20.0,
    figure="12 lost nothing of boxes, and 30 made a detector 1.2 times as slow (DECISIONS.md, 23)",
    chosen_on="a detector",
)
"""Relative to the variation, also for boxes beside scores: noise of 1 % of it costs half a point of
correlation."""

SIGNAL_DB = tuned(
    38.0,
    figure=(
        "a network lost 0.37 dB at 39.5 and 0.64 at 37.7; estimates were 2 to 3 dB too good "
        "(DECISIONS.md, 32)"
    ),
    chosen_on="super-resolution",
)
"""Relative to the variation: for a picture whose brightness has a deviation of a quarter of the range this is
a PSNR of 50 dB, which costs a network of 38 dB 0.3 dB, and one of 35 dB 0.14."""

STEP_SHARE = tuned(1.0 / 40.0, figure="none: 2 % of the values become another number", chosen_on="by hand")
"""Deviation of rounding noise, in steps."""

COMPARED_DB = tuned(30.0, figure="none: the order of 1 % of the pairs changes", chosen_on="by hand")
"""Of what is compared, over what varies."""

TOLERANCE = tuned(
    0.02,
    figure=(
        "networks wholly in int8 have 0.3 to 0.5 %; a perceptron behind an exponential 3.7, or "
        "1.8 at the cost of 6 % of float's time (DECISIONS.md, 89)"
    ),
    chosen_on="a forecaster, poses, a perceptron that was made",
)
"""Typical measured error of values, divided by the variation of their column."""

PLACES_TOLERANCE = tuned(
    0.1,
    figure=(
        "corners lost nothing with 2.7 % in their logits, and a heat map was no better for 41 dB "
        "than for 25 (DECISIONS.md, 89)"
    ),
    chosen_on="a detector of corners, a heat map",
)
"""The same of maps and sequences, whose places are read together or at their peaks, and of vectors that
nothing tells from embeddings: 20 dB, half a point of correlation (DECISIONS.md, 23)."""

AS_SET = "set by the user"
"""Why an output is of a kind that the user gave."""

AT_RANDOM = "it is drawn at random"
"""Why an output cannot be compared."""

MIN_VARYING = 1e-3
"""Least fraction of a tensor's power that counts as variation: few samples may all give the same."""

LIMITS: Mapping[OutputKind, tuple[float, bool]] = {
    "decision": (DECISION_DB, False),
    "detections": (VALUES_DB, True),
    "embedding": (DECISION_DB, False),
    "signal": (SIGNAL_DB, True),
    "state": (0.0, False),
    "values": (VALUES_DB, True),
}
"""SQNR in dB of each kind, and whether it is relative to the variation; 0 for no limit."""

WORDS: Mapping[OutputKind, str] = {
    "decision": "a decision",
    "detections": "detections",
    "embedding": "an embedding",
    "signal": "a signal",
    "state": "a state",
    "values": "values",
}


@dataclass(frozen=True, eq=False)
class NoiseLimits:
    """The limits of one model; outputs are by name."""

    graph: Graph
    profile: Profile
    kinds: Mapping[str, OutputKind]
    min_output_sqnr: float | None  # dB that every output keeps; None if the kind says
    steps: tuple[Step, ...]  # inside of it
    tolerance: float = TOLERANCE  # typical error of a column of values
    asked: bool = False  # whether the user asked for that, so that it holds for maps too
    maps: frozenset[str] = frozenset()  # of which each place or position has values
    relative: frozenset[str] = frozenset()  # of which an error is in proportion to the value
    # output -> the scores that it is the index of the largest of
    indices: Mapping[str, str] = field(default_factory=dict)
    # output -> why it cannot be compared sample by sample
    incomparable: Mapping[str, str] = field(default_factory=dict)
    # output -> axes whose size the model leaves free: places, no columns
    free_axes: Mapping[str, frozenset[int]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)  # output -> why it is of its kind
    # the largest is an answer of decisions and detections alone
    classes: Mapping[str, ClassAxis] = field(default_factory=dict)
    logits: frozenset[str] = frozenset()  # decisions once a softmax is taken: planned for as values are

    @property
    def compares_nothing(self) -> bool:
        """Whether no output can be compared sample by sample, even before a run."""
        return self.incomparable.keys() >= set(self.graph.outputs)

    @property
    def compared(self) -> tuple[str, ...]:
        """The tensors inside of the model at which noise is judged beside its outputs."""
        tensors = (step.tensor for step in self.steps if not step.chooses)
        return tuple(name for name in tensors if self._power(name) > 0.0)

    def allowed(self, tensor: str) -> float:
        """Return the most noise power over signal power at an output, a part of one, or one of `compared`."""
        if self.min_output_sqnr is not None:
            return _noise_share(self.min_output_sqnr)
        step = next((step for step in self.steps if step.tensor == tensor), None)
        if step is None or tensor in self.kinds:
            return self._at_output(tensor, self.output_of(tensor))
        if step.width is not None:
            return (STEP_SHARE * step.width) ** 2 / self._power(step.tensor)
        return _noise_share(COMPARED_DB) * self._varying(step.tensor)

    def planned_kind(self, output: str) -> OutputKind:
        """Return the kind that an output is planned for."""
        return "values" if output in self.logits else self.kinds.get(output, "decision")

    def output_of(self, tensor: str) -> str:
        """Return the output that a tensor is a part of: the nearest; "" for none."""
        if tensor in self.kinds:
            return tensor
        uses = downstream(self.graph, [tensor])
        names = (name for node, _ in uses for name in node.outputs)
        return next((name for name in names if name in self.kinds), "")

    def error(self, output: str, *, is_vector: bool = False) -> float:
        """Return the largest typical error of a column of values, whose columns look like an embedding if
        `is_vector`."""
        together = output in self.maps or is_vector
        return PLACES_TOLERANCE if together and not self.asked else self.tolerance

    def words(self, tensor: str) -> str:
        """Return the kind of a tensor at which noise is judged, for people: "a signal", "rounded by Ceil"."""
        step = next((step for step in self.steps if step.tensor == tensor), None)
        if step is not None and tensor not in self.kinds:
            return f"{'compared' if step.width is None else 'rounded'} by {step.operator}"
        return WORDS[self.kinds.get(self.output_of(tensor), "decision")]

    def _at_output(self, tensor: str, output: str) -> float:
        kind = self.planned_kind(output)
        if kind == "state" and any(other != "state" for other in self.kinds.values()):
            return inf
        if kind == "detections" and is_decision(self.graph, self.profile, tensor):
            kind = "decision"
        decibels, over_variance = LIMITS[kind]
        if kind == "values" and self.asked:
            decibels, over_variance = -20.0 * log10(self.tolerance), output not in self.relative
        return _noise_share(decibels) * (self._varying(tensor) if over_variance else 1.0)

    def _power(self, name: str) -> float:
        tensor = self.profile.get(name)
        return 0.0 if tensor is None else signal_power(tensor)

    def _varying(self, name: str) -> float:
        """Return the variance of a tensor over its power."""
        power = self._power(name)
        if power <= 0.0:
            return 1.0
        mean = mean_of(density(self.profile[name]), lambda x: x)
        return max(1.0 - mean**2 / power, MIN_VARYING)

    def findings(self) -> Iterator[Finding]:
        """Yield the kind of each output and the reason, states together; nothing with one limit for all."""
        if self.min_output_sqnr is not None:
            return
        states = [name for name, kind in self.kinds.items() if kind == "state"]
        for name, kind in self.kinds.items():
            if name in states[1:]:
                continue
            told = OutputMeaning(kind, self.reasons.get(name, "as given"))
            sentence = told.sentence(name, len(states) - 1 if kind == "state" else 0)
            remedy = "" if told.reason == AS_SET else told.remedy(name)
            yield Finding(Code.OUTPUT_KIND, sentence, name, {"kind": kind, "reason": told.reason}, remedy)


def meanings_in_plan(findings: Iterable[Finding]) -> dict[str, OutputMeaning]:
    """Return the kinds of outputs in the findings of a plan."""
    told = (f for f in findings if f.code is Code.OUTPUT_KIND)
    kinds = {f.subject: (str(f.figures.get("kind")), str(f.figures.get("reason", ""))) for f in told}
    return {
        name: OutputMeaning(known, reason)
        for name, (kind, reason) in kinds.items()
        for known in OUTPUT_KINDS
        if known == kind
    }


def kinds_in_settings(graph: Graph, config: QuantConfig) -> dict[str, OutputKind]:
    """Return the kinds of outputs in the settings; raise ConfigError if a name is no output."""
    kinds = split_kinds(config.output_kind)
    for name in kinds:
        if name not in graph.outputs:
            raise ConfigError(
                f"output_kind '{name}': the model has no such output; it has "
                f"{', '.join(graph.outputs)}.{nearest(name, list(graph.outputs))}"
            )
    return kinds


def noise_limits(graph: Graph, profile: Profile, config: QuantConfig) -> NoiseLimits:
    """Return the noise limits of outputs and inner steps; kinds in the settings overrule the graph's."""
    given = kinds_in_settings(graph, config)
    told = meanings_of(graph, profile)
    kinds = {name: given.get(name, one.kind) for name, one in told.items()}
    axes = {name: class_axis_of(graph.values[name]) for name in kinds}
    decided = {name for name in kinds if any(is_decision(graph, profile, p) for p in parts_of(graph, name))}
    sqnr = 0.0 if config.has_size else config.min_output_sqnr  # a size that is asked for decides alone
    steps = find_steps(graph) if sqnr is None else ()
    scores = {name: scores_of_index(graph, name) for name in kinds}
    classes = {n for n, kind in kinds.items() if kind == "decision"}
    return NoiseLimits(
        graph,
        profile,
        kinds,
        sqnr,
        steps,
        tolerance=TOLERANCE if config.tolerance is None else config.tolerance,
        asked=config.tolerance is not None,
        maps=frozenset(name for name in kinds if has_places(graph, profile, name)),
        relative=frozenset(name for name in kinds if makes_magnitudes(graph, name)),
        indices={name: of for name, of in scores.items() if of is not None},
        incomparable={name: AT_RANDOM for name in kinds if drawn_at_random(graph, name)},
        free_axes={
            name: frozenset(axis for axis, dim in enumerate(graph.shape(name) or ()) if dim is None)
            for name in kinds
        },
        reasons={name: AS_SET if name in given else one.reason for name, one in told.items()},
        classes={
            name: replace(axis, is_answer=name in given or axis.is_answer)
            if kinds[name] in ("decision", "detections")
            else replace(axis, is_answer=False)
            for name, axis in axes.items()
        },
        logits=frozenset(classes - decided - given.keys()),
    )


def judging_limits(graph: Graph, profile: Profile, config: QuantConfig) -> NoiseLimits:
    """Return the limits that a written model is judged by; an SQNR of 0 leaves the kinds of outputs to
    decide."""
    config = config if config.min_output_sqnr else replace(config, min_output_sqnr=None)
    return noise_limits(graph, profile, config)


def _noise_share(decibels: float) -> float:
    """Return an SQNR as noise over signal; infinite for none."""
    return float(np.power(10.0, -decibels / 10.0)) if decibels > 0.0 else inf
