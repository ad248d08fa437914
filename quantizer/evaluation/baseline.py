"""Not worse than the last release: an evaluation held against an earlier one of the same model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ...profiles.base.errors import ConfigError
from .evaluate import Evaluation, Subject
from .gates import GateFailure, limit_failures
from .options import Slack

Number: TypeAlias = float | Literal["inf", "-inf", "nan"] | None
"""A number of a `--json` document: JSON has no infinity."""

FORMAT = "qprof-evaluation/"
_NEW = "make a new one with --save-baseline"


@dataclass(frozen=True)
class _Figure:
    """What a baseline is read for of a score, an output, or a latency."""

    quantized_score: Number = None
    quantized_percent: Number = None
    speedup: Number = None
    threads: int = 1
    sqnr: Number = None


@dataclass(frozen=True)
class _Output:
    name: str
    difference: _Figure | None = None


@dataclass(frozen=True)
class Baseline:
    """An earlier evaluation: of its JSON what is compared.

    Attributes:
        quantized_bytes: size of the quantized model.
        outputs: each with its SQNR.
        format: of the document, where it says so.
        subject: digests of what was compared on what.
        score, accuracy, latency: None where it was not measured.
        metric, runtime, provider: as in `Evaluation`.
    """

    quantized_bytes: int
    outputs: tuple[_Output, ...]
    format: str = FORMAT
    subject: Subject | None = None
    score: _Figure | None = None
    accuracy: _Figure | None = None
    latency: _Figure | None = None
    metric: str = ""
    runtime: str = ""
    provider: str = ""


def load_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Return the earlier evaluation in a file that `--save-baseline` or `--json` wrote.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        baseline = msgspec.json.decode(Path(path).read_bytes(), type=Baseline)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is no evaluation as JSON ({error}); {_NEW}") from error
    if not baseline.format.startswith(FORMAT) or baseline.subject is None:
        raise ConfigError(f"{path}: says nothing of model and samples that it is about; {_NEW}")
    return baseline


def compare_with_baseline(now: Evaluation, earlier: Baseline, name: str, slack: Slack) -> Evaluation:
    """Return an evaluation with a failure for each figure that is worse than in an earlier one.

    Args:
        now: the evaluation.
        earlier: the other one.
        name: of its file.
        slack: how much worse a figure may be.

    Raises:
        ConfigError: it is about another float model, other samples, metric, truth, runtime or provider.
    """
    assert now.subject is not None
    assert earlier.subject is not None
    for what, mine, theirs in (
        ("another float model", now.subject.float_model, earlier.subject.float_model),
        ("other samples", now.subject.data, earlier.subject.data),
        ("another metric", now.metric, earlier.metric),
        ("another truth or other options of the metric", now.subject.metric, earlier.subject.metric),
        ("another runtime", (now.runtime, now.provider), (earlier.runtime, earlier.provider)),
    ):
        if mine != theirs:
            raise ConfigError(f"{name}: is about {what}, and cannot be compared; {_NEW}")
    worse = tuple(_baseline_failures(now, earlier, name, slack))
    remarks: tuple[str, ...] = ()
    a, b = now.latency, earlier.latency
    if a is not None and b is not None and a.threads != b.threads:
        remarks = (f"{name}: its speedup was measured on another number of threads",)
    return replace(now, baseline=name, failures=(*now.failures, *worse), remarks=(*now.remarks, *remarks))


def _baseline_failures(now: Evaluation, earlier: Baseline, name: str, slack: Slack) -> Iterator[GateFailure]:
    """Yield a failure for each figure of the baseline that is worse by more than the slack, or not there."""
    compared = 0
    score: float | None = None
    earlier_score: Number = None
    if now.score is not None:
        score = now.score.quantized_score
        earlier_score = None if earlier.score is None else earlier.score.quantized_score
    elif now.accuracy is not None:
        score = now.accuracy.quantized_percent
        earlier_score = None if earlier.accuracy is None else earlier.accuracy.quantized_percent
    if earlier_score is not None:
        compared += 1
        then = float(earlier_score)
        better = now.score is None or now.score.higher_is_better
        relative = now.score is not None and now.score.drop_unit.startswith("%")
        allowed = abs(then) * slack.score / 100.0 if relative else slack.score
        limit = then - allowed if better else then + allowed
        unit = "%" if now.score is None else now.score.unit
        has = f"{name} has {then:.6g}"
        yield from limit_failures("baseline_score", limit, score, reason=has, unit=unit, is_least=better)
    before = {o.name: o.difference for o in earlier.outputs}
    for output in now.outputs:
        figure = before.get(output.name)
        if figure is None or figure.sqnr is None:
            continue
        compared += 1
        then = float(figure.sqnr)
        measured = None if output.difference is None or output.shape_mismatches else output.difference.sqnr
        yield from limit_failures(
            "baseline_sqnr",
            then - slack.sqnr,
            measured,
            where=f"output '{output.name}'",
            reason=f"{name} has {then:.6g}",
        )
    if not compared:
        doubt = f"{name} has no score and no output that this evaluation has"
        yield from limit_failures("baseline_score", 0.0, None, doubt=doubt)
    size = earlier.quantized_bytes
    largest = size * (1.0 + slack.size / 100.0)
    yield from limit_failures(
        "baseline_size", largest, float(now.quantized_bytes), reason=f"{name} has {size:.6g}"
    )
    fast = None if earlier.latency is None else earlier.latency.speedup
    if now.latency is None or earlier.latency is None or fast is None:
        return
    if now.latency.threads == earlier.latency.threads:
        slowest = float(fast) * (1.0 - slack.speedup / 100.0)
        has = f"{name} has {float(fast):.6g}"
        yield from limit_failures("baseline_speedup", slowest, now.latency.speedup, reason=has)
