"""What a tuning promises, what it found, and what stood in its way."""

from __future__ import annotations

from dataclasses import dataclass

from ...profiles.base.errors import ConfigError, nearest
from .scores import Judgement
from .search import Trial, kept
from .trial import OBJECTIVES


@dataclass(frozen=True)
class Promise:
    """What a tuned model has to keep, and how it is looked for.

    Attributes:
        max_drop: points that it may lose of what is measured (see `judging`).
        objective: what is made as large as possible: a key of `OBJECTIVES`.
        budget: seconds after which nothing new is tried; None for no end. What has begun is finished.
        seed: of the split into tuning and proof.
        threads: that latency is measured on.

    Raises:
        ConfigError: a value makes no sense.
    """

    max_drop: float = 0.5
    objective: str = "latency"
    budget: float | None = None
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigError(
                f"objective '{self.objective}' is not one of {', '.join(OBJECTIVES)}."
                f"{nearest(self.objective, OBJECTIVES)}"
            )
        if not 0.0 <= self.max_drop <= 100.0:
            raise ConfigError(f"max_drop: {self.max_drop:g} is not a number of points from 0 to 100")
        if self.budget is not None and not self.budget > 0.0:
            raise ConfigError(f"budget: {self.budget:g} is not a number of seconds above 0")
        if self.threads < 1:
            raise ConfigError(f"threads: {self.threads} is below 1; latency is of a stated number of threads")


@dataclass(frozen=True)
class TuneResult:
    """What a tuning found.

    Attributes:
        model: file name.
        measured: what the promise is about.
        promise: what was asked for.
        held_out: whether the proof's samples had no part in the tuning.
        split: how they were told apart.
        trials: all of them, in order.
        chosen: index of the best of them; None when no plan could be run.
        proof: the chosen plan on the proof's samples; None without one.
        kept: whether the promise holds on the tuning samples and on the proof's.
        proven: whether even the upper end of the proof's interval keeps it.
        limits: what stood in the way, as sentences.
        float_nodes: nodes that the chosen plan leaves float for the promise's sake.
        float_bytes, quantized_bytes: sizes of the model files.
        seconds: how long it took, without what the state file spared.
    """

    model: str
    measured: str
    promise: Promise
    held_out: bool
    split: str
    trials: tuple[Trial, ...]
    chosen: int | None
    proof: Judgement | None
    kept: bool
    proven: bool
    limits: tuple[str, ...]
    float_nodes: tuple[str, ...]
    float_bytes: int
    quantized_bytes: int | None
    seconds: float

    @property
    def best(self) -> Trial | None:
        """The trial that was chosen."""
        return None if self.chosen is None else self.trials[self.chosen]


def limits_of(result: TuneResult) -> tuple[str, ...]:
    """Return what stood in the way of a better plan or of a proof."""
    best, proof = result.best, result.proof
    if best is None or proof is None:
        return ("no plan computes on codes and can be run; the trials say why",)
    said = []
    if not kept(best, result.promise.max_drop):
        said.append(
            "no plan that was tried keeps the promise on the tuning samples; "
            f"the closest loses {best.drop:.2f} points"
        )
    elif not result.kept:
        said.append(
            f"the promise holds on the tuning samples ({best.drop:.2f} points) and not on the proof's "
            f"({proof.drop:.2f}): give more samples, or a smaller --max-drop to tune with"
        )
    elif not result.proven:
        said.append(
            f"kept as measured, but {proof.units} rows are too few to prove it: the 95 % interval reaches "
            f"{proof.drop_high:.2f} points"
        )
    if result.promise.objective == "latency" and best.value is not None and best.value < 1.0:
        said.append(
            f"the best plan is slower than float ({best.value:.2f} times as fast): keep float, or choose "
            "another objective"
        )
    if result.float_nodes:
        said.append(f"{len(result.float_nodes)} nodes had to stay float: {_few(result.float_nodes)}")
    if not result.held_out:
        said.append("tuning and proof used the same samples: the proof is too kind")
    return tuple(said)


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
