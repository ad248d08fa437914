"""No worse than the accepted one: a newer card held against an earlier one of the same float model.

The quantized models may differ, and so may the tools and the machines: only figures that are worse count.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....profiles.base.errors import ConfigError
from .figures import Figure, figures_of, speed_figures
from .options import Slack
from .record import Card
from .verification import Check


def checks_of_newer(card: Card, newer: Card, slack: Slack, names: tuple[str, str]) -> Iterator[Check]:
    """Yield whether score, SQNR of each output, size and speed-up of a newer card are not worse.

    A speed-up is compared if machine, runtime and threads are the same, and the machine was not busy. Raises
    ConfigError if the cards have another float model, or other samples, metric, truth, runtime or provider.
    """
    then, now = card.evaluation, newer.evaluation
    for subject, earlier, later in (
        ("another float model", then.subject["float_model"], now.subject["float_model"]),
        ("other samples", then.subject["data"], now.subject["data"]),
        ("another metric", then.metric, now.metric),
        ("other labels or other options of the metric", then.subject["metric"], now.subject["metric"]),
        ("another runtime", (then.runtime, then.provider), (now.runtime, now.provider)),
    ):
        if earlier != later:
            raise ConfigError(
                f"{names[1]}: is about {subject} than {names[0]}, and cannot be compared; accept a new card"
            )
    accepted, measured = figures_of(then, slack), figures_of(now, slack)
    if accepted.keys() <= {"size"}:
        yield Check("figures", "worse", card.headline(), "", "neither score nor output that both have")
    for of, figure in accepted.items():
        if of not in measured:
            yield Check(of, "worse", figure.text, "", "could not be measured")
        else:
            yield _check(figure.text, figure.value, figure.slack, measured[of])
    if then.latency is not None:
        text, why, speed = speed_figures(card, newer, slack)
        is_unread = Check("speed", "not checked", text, "", why)
        yield is_unread if why else _check(text, then.latency.speedup, speed.slack, speed)


def _check(text: str, then: float, slack: float, now: Figure) -> Check:
    """Return whether a newer figure is good enough, and if not, the difference."""
    if now.value != now.value:
        return Check(now.of, "worse", text, "", "could not be measured")
    limit = then - slack if now.is_least else then + slack
    if now.value >= limit if now.is_least else now.value <= limit:
        return Check(now.of, "kept", text, now.text)
    return Check(now.of, "worse", text, now.text, f"{now.off(then)}, with a slack of {slack:.4g}{now.unit}")
