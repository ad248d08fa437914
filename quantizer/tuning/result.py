"""The result of a tuning, and what stood in the way of a better one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...profiles.base.presentation import Presentation, Presented, Table
from ..metrics.score import Score
from ..scoring.quality_target import QualityTarget
from .candidates import Trial, meets


@dataclass(frozen=True, repr=False)
class TuneResult(Presented):
    """The result of a tuning.

    Attributes:
        model: file name.
        metric: what the score is, for people.
        drop_unit: in what its drop is counted.
        assumed: what the metric took the outputs and its truth for.
        target: the quality target.
        split: how the tuning and the held-out samples were separated, as a sentence.
        separate_holdout: whether no held-out sample was used for tuning or for the profile, as far as known.
        overlaps: how they were used otherwise, as sentences.
        trials: all of them, in order.
        finished: whether the search ended by itself, and not by the time budget.
        chosen: index of the best trial; None when no plan could be run.
        holdout: score of the chosen plan on the held-out samples; None without a plan.
        float_bytes, quantized_bytes: sizes of the model files; None for a model that was not made.
        seconds: duration, without the trials that came from the state file.
    """

    model: str
    metric: str
    target: QualityTarget
    split: str
    separate_holdout: bool
    overlaps: tuple[str, ...]
    trials: tuple[Trial, ...]
    finished: bool
    chosen: int | None
    holdout: Score | None
    float_bytes: int
    quantized_bytes: int | None
    seconds: float
    drop_unit: str = "percentage points"
    assumed: tuple[str, ...] = ()

    def headline(self) -> str:
        """Return the model, whether the target is met, and the score on the held-out samples."""
        met = "target met" if self.target_met else "target missed"
        where = "held out" if self.separate_holdout else "on samples used before"
        drop = "" if self.holdout is None else f", drop {self.holdout.drop:.2f} {self.drop_unit} {where}"
        return f"{self.model}, {met}{drop}, {len(self.trials)} trials"

    def presentation(self) -> Presentation:
        """Return the target, what limits the result, and a table of the trials."""
        rows = tuple(
            (
                trial.candidate.base.name,
                str(len(trial.candidate.keep_float)),
                str(trial.quantized_nodes),
                "-" if trial.score is None else f"{trial.score.drop:.2f}",
                "-" if trial.predicted is None else f"{trial.predicted:.2f}",
                "-" if trial.value is None else f"{trial.value:.2f}",
                trial.error,
            )
            for trial in self.trials
        )
        header = ("settings", "kept float", "quantized", "drop", "predicted", self.target.objective, "error")
        facts = [("target", f"a drop of at most {self.target.max_drop:g} {self.drop_unit} in {self.metric}")]
        facts += [("limit", sentence) for sentence in self.limits]
        return Presentation(tuple(facts), (Table(header, rows),))

    @property
    def best(self) -> Trial | None:
        """The trial that was chosen."""
        return None if self.chosen is None else self.trials[self.chosen]

    @property
    def float_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that the chosen plan leaves float to meet the target."""
        return () if self.best is None else self.best.candidate.keep_float

    @property
    def target_met(self) -> bool:
        """Whether the chosen plan meets the target as measured, on the tuning samples and the held-out ones.

        With few rows that is no proof, see `verified`. A plan for objective "size" must not be larger than
        the float model besides.
        """
        return self.best is not None and target_met(self.best, self.holdout, self.target)

    @property
    def verified(self) -> bool:
        """Whether the upper end of the 95 % interval meets the target too, on samples not used before."""
        if self.holdout is None or not self.separate_holdout:
            return False
        return self.target_met and self.holdout.drop_high <= self.target.max_drop

    @property
    def limits(self) -> tuple[str, ...]:
        """What stood in the way of a better plan, or of a verified one, as sentences."""
        return tuple(_limits(self))


def target_met(best: Trial, holdout: Score | None, target: QualityTarget) -> bool:
    """Return whether a plan meets the target on the tuning samples (its trial) and on the held-out ones.

    One that is larger than the float model misses it where the size was to be made small.
    """
    kept = meets(best, target.max_drop) and holdout is not None and holdout.drop <= target.max_drop
    return kept and not _is_larger(best, target)


def _is_larger(best: Trial, target: QualityTarget) -> bool:
    return target.objective == "size" and best.value is not None and best.value < 1.0


def _limits(result: TuneResult) -> Iterator[str]:
    best, holdout = result.best, result.holdout
    if best is None or holdout is None:
        yield "no plan quantizes a node and can be run; 'qprof quantize' says why, for each node"
    else:
        yield from _missed(result, best, holdout)
        if result.target.objective == "latency" and best.value is not None and best.value < 1.0:
            yield (
                f"the best plan is slower than float ({best.value:.2f} times as fast): keep the float model, "
                "or choose another objective"
            )
        if _is_larger(best, result.target):
            yield (
                f"the best plan is larger than float ({best.value:.2f} times smaller): keep the float model, "
                "or choose another objective"
            )
        if result.float_nodes:
            yield f"{len(result.float_nodes)} nodes had to stay float: {_few(result.float_nodes)}"
        for sentence in result.overlaps:
            yield f"{sentence} (the score on samples that were used before is too optimistic)"
    if not result.finished:
        yield f"the time budget of {result.target.budget:g} s ended after {len(result.trials)} trials"


def _missed(result: TuneResult, best: Trial, holdout: Score) -> Iterator[str]:
    if not meets(best, result.target.max_drop):
        yield (
            "no plan that was tried meets the target on the tuning samples; the smallest drop is "
            f"{best.drop:.2f} {result.drop_unit}"
        )
    elif holdout.drop > result.target.max_drop:
        yield (
            f"the target is met on the tuning samples (drop {best.drop:.2f} {result.drop_unit}) and missed "
            f"on the held-out ones ({holdout.drop:.2f}): give more samples, or tune with a smaller "
            "--max-drop; another --seed would be a second look at the same samples, and no proof"
        )
    elif result.separate_holdout and not holdout.drop_high <= result.target.max_drop:
        yield (
            f"{holdout.rows} held-out rows are too few to verify the target: the 95 % interval of the drop "
            f"reaches {holdout.drop_high:.2f} {result.drop_unit}"
        )


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
