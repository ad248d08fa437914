"""No worse than the accepted one: a newer card held against an earlier one of the same float model.

The quantized models may differ, and so may the tools and the machines: only figures that are worse count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ....profiles.base.errors import ConfigError
from ...evaluation.evaluate import Evaluation
from .options import Slack
from .record import Card
from .verification import Check


@dataclass(frozen=True)
class _Figure:
    """A figure of both cards."""

    of: str  # its name
    then: float
    now: float | None  # None if the newer card has none
    slack: float  # by how much it may be worse
    unit: str = ""  # of all of them; "" for none
    style: str = ".2f"  # in which they are printed
    is_least: bool = True  # whether a higher figure is better

    def check(self) -> Check:
        """Return whether the newer figure is kept, and how far off it is where it is not."""
        if self.now is None or math.isnan(self.now):
            return Check(self.of, "worse", self._text(self.then), "", "could not be measured")
        limit = self.then - self.slack if self.is_least else self.then + self.slack
        is_kept = self.now >= limit if self.is_least else self.now <= limit
        texts = self._text(self.then), self._text(self.now)
        if is_kept:
            return Check(self.of, "kept", *texts)
        off = f"{self.now - self.then:+{self.style}}{self.unit}"
        return Check(self.of, "worse", *texts, f"{off}, with a slack of {self.slack:.4g}{self.unit}")

    def _text(self, value: float) -> str:
        return f"{value:{self.style}}{self.unit}"


def checks_of_newer(card: Card, newer: Card, slack: Slack, names: tuple[str, str]) -> Iterator[Check]:
    """Yield whether score, SQNR of each output, size and speed-up of a newer card are not worse.

    A speed-up is compared if machine, runtime and threads are the same, and the machine was not busy. Raises
    ConfigError if the cards have another float model, or other samples, metric, truth, runtime or provider.
    """
    then, now = card.evaluation, newer.evaluation
    assert then.subject is not None
    assert now.subject is not None
    for subject, earlier, later in (
        ("another float model", then.subject.float_model, now.subject.float_model),
        ("other samples", then.subject.data, now.subject.data),
        ("another metric", then.metric, now.metric),
        ("another truth or other options of the metric", then.subject.metric, now.subject.metric),
        ("another runtime", (then.runtime, then.provider), (now.runtime, now.provider)),
    ):
        if earlier != later:
            raise ConfigError(
                f"{names[1]}: is about {subject} than {names[0]}, and cannot be compared; accept a new card"
            )
    figures = [*_scores(then, now, slack), *_ratios(then, now, slack)]
    if not figures:
        yield Check("figures", "worse", card.headline(), "", "neither score nor output that both have")
    yield from (figure.check() for figure in figures)
    largest = then.quantized_bytes * slack.size / 100.0
    size = _Figure(
        "size", then.quantized_bytes, now.quantized_bytes, largest, " bytes", style=".0f", is_least=False
    )
    yield size.check()
    yield from _speed(card, newer, slack)


def _scores(then: Evaluation, now: Evaluation, slack: Slack) -> Iterator[_Figure]:
    """Yield the quantized model's score."""
    if (s := then.score) is not None:
        score = None if now.score is None else now.score.quantized_score
        is_relative = s.drop_unit.startswith("%")
        yield _Figure(
            f"{then.metric} of the quantized model",
            s.quantized_score,
            score,
            abs(s.quantized_score) * slack.score / 100.0 if is_relative else slack.score,
            f" {s.unit}" if s.unit else "",
            style=".2f" if s.unit else ".6g",
            is_least=s.higher_is_better,
        )


def _ratios(then: Evaluation, now: Evaluation, slack: Slack) -> Iterator[_Figure]:
    """Yield the SQNR of each output that the earlier card has one of."""
    outputs = {output.name: output for output in now.outputs}
    for output in then.outputs:
        if output.difference is not None and not output.shape_mismatches:
            found = outputs.get(output.name)
            measured = None
            if found is not None and found.difference is not None and not found.shape_mismatches:
                measured = found.difference.sqnr
            yield _Figure(
                f"SQNR of output '{output.name}'", output.difference.sqnr, measured, slack.sqnr, " dB"
            )


def _speed(card: Card, newer: Card, slack: Slack) -> Iterator[Check]:
    """Yield whether the speed-up is kept, or why it is not compared."""
    then, now = card.evaluation.latency, newer.evaluation.latency
    if then is None:
        return
    why = ""
    if now is None:
        why = "latency was not measured"
    elif card.machine != newer.machine:
        why = "measured on another machine"
    elif then.threads != now.threads:
        why = "measured on another number of threads"
    elif now.is_unclear:
        why = "this machine is busy"
    lost = then.speedup * slack.speedup / 100.0
    figure = _Figure("speed", then.speedup, None if now is None else now.speedup, lost, " times")
    yield Check("speed", "not checked", figure.check().card, "", why) if why else figure.check()
