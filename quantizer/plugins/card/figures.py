"""The figures of a card that people decide by, and by how much each may differ from a second measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...evaluation.evaluate import Evaluation
from .options import Slack
from .record import Card

MAX_SQNR_DB = 100.0
"""SQNR in dB above which two outputs differ only by the order of float sums, and so by machine."""


@dataclass(frozen=True)
class Figure:
    """A figure of an evaluation, with the slack that another one has.

    Attributes:
        of: its name.
        value: nan if it could not be measured.
        slack: by how much another measurement may differ, or be worse.
        unit: with a blank before it; "" for none.
        style: style of its text.
        is_least: whether a higher figure is better.
        needs_truth: whether it is there with labels only.
    """

    of: str
    value: float
    slack: float
    unit: str = ""
    style: str = ".2f"
    is_least: bool = True
    needs_truth: bool = False

    @property
    def text(self) -> str:
        """The figure as text."""
        return f"{self.value:{self.style}}{self.unit}"

    def is_same(self, then: float) -> bool:
        """Return whether an earlier figure is this one, better or worse by no more than the slack."""
        near = 1e-9 * max(1.0, abs(self.value)) if math.isfinite(self.value) else 0.0
        return then == self.value or abs(then - self.value) <= self.slack + near

    def off(self, then: float) -> str:
        """Return how far it is from an earlier one."""
        return f"{self.value - then:+{self.style}}{self.unit}" if math.isfinite(self.value - then) else ""


def figures_of(found: Evaluation, slack: Slack, *, repeated: bool = False) -> dict[str, Figure]:
    """Return the scores and the size of the quantized model, and the SQNR of each output, by name.

    `repeated` is for the same model, measured twice: with the scores of the float model, the interval of the
    score's drop, and the answers that both models give. A row may then turn, by other float sums.
    """
    figures = [*_scores(found, slack, repeated=repeated)]
    for output in found.outputs:
        if output.difference is not None and not output.shape_mismatches:
            sqnr = min(output.difference.sqnr, MAX_SQNR_DB) if repeated else output.difference.sqnr
            figures.append(Figure(f"SQNR of output '{output.name}'", sqnr, slack.sqnr, " dB"))
        if repeated and (same := output.agreement) is not None:
            of = f"same answers of '{output.name}'"
            row = max(slack.score, 100.0 / max(same.total, 1))
            figures.append(Figure(of, 100.0 * same.ratio, row, " %"))
    largest = found.quantized_bytes * slack.size / 100.0
    figures.append(Figure("size", found.quantized_bytes, largest, " bytes", ".0f", is_least=False))
    return {figure.of: figure for figure in figures}


def _scores(found: Evaluation, slack: Slack, *, repeated: bool) -> Iterator[Figure]:
    """Yield the score."""
    models = ("float", "quantized") if repeated else ("quantized",)
    if (s := found.score) is not None:
        unit, is_relative = f" {s.unit}" if s.unit else "", s.drop_unit.startswith("%")
        row = max(slack.score, 100.0 / s.rows) if repeated and s.unit == "%" else slack.score
        for of in models:
            score = getattr(s, f"{of}_score")
            yield Figure(
                f"{found.metric} of the {of} model",
                score,
                abs(score) * slack.score / 100.0 if is_relative else row,
                unit,
                ".2f" if s.unit else ".6g",
                s.higher_is_better,
                needs_truth=True,
            )
        for of in ("drop", "drop_low", "drop_high") if repeated else ():
            drop, name = getattr(s, of), f"{of} of {found.metric}"
            yield Figure(name, drop, 2.0 * row, f" {s.drop_unit}", is_least=False, needs_truth=True)


def speed_figures(
    card: Card, newer: Card, slack: Slack, *, repeated: bool = False
) -> tuple[str, str, Figure]:
    """Return the earlier speed-up as text, why it is not compared, or "", and the newer one.

    Two measurements of one model may differ by the quartiles of the rounds besides the slack.
    """
    then, now = card.evaluation.latency, newer.evaluation.latency
    assert then is not None
    why = ""
    if now is None:
        why = "latency was not measured"
    elif card.machine != newer.machine:
        why = "measured on another machine"
    elif then.threads != now.threads:
        why = "measured on another number of threads"
    elif now.is_unclear:
        why = "this machine is busy"
    allowed = then.speedup * slack.speedup / 100.0
    if repeated and now is not None:
        spread = max(now.speedup - now.speedup_low, now.speedup_high - now.speedup)
        allowed = now.speedup * slack.speedup / 100.0 + spread
    value = math.nan if now is None else now.speedup
    return f"{then.speedup:.2f} times", why, Figure("speed", value, allowed, " times")
