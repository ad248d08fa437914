"""A card held against the files and samples that it was made of: all that people decide by is compared.

Verifying makes the card again. It compares files, samples, labels, origin, scores, SQNR of each output,
sizes, limits and speed (`figures`), but not other results of the same run, such as cosines. Tolerances follow
from the new measurement and the user's slack: a card cannot widen them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ....profiles.base.presentation import Presentation, Presented, Table
from ...evaluation.evaluate import Evaluation
from ...evaluation.options import Gate
from .figures import figures_of, speed_figures
from .options import Slack
from .record import Card, FileDigest

Result = Literal["same", "differs", "not checked", "told", "kept", "worse"]
"""Result of a check: "told" is a difference that refutes nothing, such as other bytes of the same weights;
"kept" and "worse" are for the figures of a newer card (`regression`)."""

REFUTING: tuple[Result, ...] = ("differs", "worse")
"""Results that end `qprof verify` with exit code 1."""


@dataclass(frozen=True)
class Check:
    """One statement of a card, checked.

    Attributes:
        of: its subject, such as a file or a figure, or its place on the card.
        result: of the check.
        card: the value on the card.
        found: the new value; "" if nothing was measured.
        reason: why it was not checked, or the difference; "" if the values show it.
    """

    of: str
    result: Result
    card: str
    found: str = ""
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Presented, document="verification"):
    """A card that was checked against files and samples.

    Attributes:
        card: its file.
        quantized_model: file of the quantized model, or of the newer card.
        checks: checks of its statements, including those that could not be made.
        evaluation: the new evaluation, or that of the newer card; None if nothing was measured.
    """

    card: str
    quantized_model: str
    checks: tuple[Check, ...]
    evaluation: Evaluation | None = None

    @property
    def passed(self) -> bool:
        """Whether everything checked is as on the card, and nothing is worse."""
        return all(check.result not in REFUTING for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether every statement was checked and is so."""
        return all(check.result in ("same", "kept") for check in self.checks)

    def headline(self) -> str:
        """Return how many statements hold."""
        told = ("same", "kept", "differs", "worse", "not checked")
        counts = {r: sum(c.result == r for c in self.checks) for r in told}
        said = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
        return f"{self.card} against {self.quantized_model}: {said}"

    def presentation(self) -> Presentation:
        """Return a table of the checks."""
        rows = tuple((c.of, c.result, c.card, c.found, c.reason) for c in self.checks)
        return Presentation((), (Table(("of", "result", "card", "found", "remark"), rows, left=5),))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, `passed` and `complete`."""
        return {**super().to_dict(), "passed": self.passed, "complete": self.complete}


def checks_of_files(
    of: str,
    on_card: Sequence[FileDigest],
    of_files: Sequence[FileDigest],
    fingerprint: tuple[str, str] | None = None,
) -> Iterator[Check]:
    """Yield whether the files of a model are those of a card; other names are not checked.

    `fingerprint` is that of graph and weights, on the card and of the model: if both are equal, other bytes
    refute nothing. It is None if the bytes have to be equal.
    """
    same_graph = fingerprint is not None and fingerprint[0] == fingerprint[1]
    for number, file in enumerate(on_card):
        name = of if not number else f"{of}, {file.name}"
        digest = f"sha256 {file.sha256[:16]}"
        if number >= len(of_files):
            yield Check(name, "differs", digest, "", "there is no such file")
            continue
        other = of_files[number]
        result: Result = "same"
        reason = ""
        if (file.sha256, file.bytes) != (other.sha256, other.bytes):
            result, reason = "differs", "other bytes, of the same number"
            if file.bytes != other.bytes:
                reason = f"{other.bytes - file.bytes:+d} bytes"
            if same_graph:
                result, reason = "told", f"{reason}; graph and weights are the same"
        yield Check(name, result, digest, f"sha256 {other.sha256[:16]}", reason)
        if file.name != other.name:
            yield Check(f"name of {name}", "not checked", file.name, other.name, "a file may be renamed")
    for other in of_files[len(on_card) :]:
        yield Check(f"{of}, {other.name}", "differs", "", f"sha256 {other.sha256[:16]}", "not on the card")


def same_bytes(files: Sequence[FileDigest], others: Sequence[FileDigest]) -> bool:
    """Return whether files have the same contents; names are ignored."""
    return [(f.sha256, f.bytes) for f in files] == [(f.sha256, f.bytes) for f in others]


def checks_without_figures(card: Card, why: str) -> Iterator[Check]:
    """Yield that the figures of a card are not checked, as nothing is measured; `why` names the remedy."""
    yield Check("figures", "not checked", card.headline(), "", why)


def checks_of_statements(card: Card, found: Card, slack: Slack, unscored: str) -> Iterator[Check]:
    """Yield a check of each statement on a card, by the card made now.

    A figure that is better than on the card differs as well. Figures of other samples refute nothing; limits
    hold for these too. `unscored` is why scores were not measured, or "".
    """
    then, now = card.evaluation, found.evaluation
    counts = [(one.samples, one.rows) for one in (then, now)]
    same_data = (then.subject["data"], counts[0]) == (now.subject["data"], counts[1])
    yield Check(
        "data",
        "same" if same_data else "differs",
        f"{then.samples} samples, digest {then.subject['data'][:16]}",
        f"{now.samples} samples, digest {now.subject['data'][:16]}",
        "" if same_data else "other samples, or another recipe: see --preprocess",
    )
    if unscored:
        yield Check("truth", "not checked", f"digest {then.subject['metric']}", "", unscored)
    elif then.subject["metric"] or now.subject["metric"]:
        truths = [
            (one.metric, one.score and one.score.rows, one.subject and one.subject["metric"])
            for one in (then, now)
        ]
        yield Check(
            "truth",
            "same" if truths[0] == truths[1] else "differs",
            f"digest {then.subject['metric'] or '-'}",
            f"digest {now.subject['metric'] or '-'}",
            "" if truths[0] == truths[1] else "other labels, or other options of the metric",
        )
    exact = replace(slack, size=0.0)
    said, measured = (figures_of(one, exact, repeated=True) for one in (then, now))
    for of, figure in said.items():
        other = measured.get(of)
        if unscored and figure.needs_truth:
            yield Check(of, "not checked", figure.text, "", unscored)
        elif other is None:
            yield Check(of, "differs", figure.text, "", "could not be measured")
        elif other.is_same(figure.value):
            yield Check(of, "same", figure.text, other.text)
        else:
            result: Result = "differs" if same_data or of == "size" else "told"
            yield Check(of, result, figure.text, other.text, other.off(figure.value))
    if same_bytes(card.float_model, found.float_model) and then.float_bytes != now.float_bytes:
        yield Check(
            "size of the float model", "differs", f"{then.float_bytes} bytes", f"{now.float_bytes} bytes"
        )
    if then.latency is not None:
        text, why, speed = speed_figures(card, found, slack, repeated=True)
        if why and now.latency != then.latency:
            yield Check("speed", "not checked", text, "", why)
        else:
            is_same = speed.is_same(then.latency.speedup)
            yield Check("speed", "same" if is_same else "differs", text, speed.text)
    yield from _checks_of_limits(then, now, unscored)


def _checks_of_limits(then: Evaluation, now: Evaluation, unscored: str) -> Iterator[Check]:
    """Yield whether each limit that a card says was kept is kept now."""
    for limit in fields(Gate):
        bound = getattr(then.gate, limit.name)
        if bound is None:
            continue
        of = f"limit {limit.name} {bound:g}"
        before = [f for f in then.failures if f.demand == limit.name]
        after = [f for f in now.failures if f.demand == limit.name]
        on_card = before[0].result if before else "kept"
        is_time = limit.name == "min_speedup"
        if getattr(now.gate, limit.name) is None:
            yield Check(of, "not checked", on_card, "", "latency was not measured" if is_time else unscored)
            continue
        result, reason = (after[0].result, after[0].reason) if after else ("kept", "")
        if after and after[0].measured is not None:
            reason = " ".join(filter(None, (f"{after[0].missing:.2f}", after[0].unit, "off")))
        refuted: Result = "not checked" if is_time else "differs"  # another run may have another time
        yield Check(of, refuted if after and not before else "same", on_card, result, reason)


def repeatable_gate(gate: Gate, *, scored: bool, timed: bool) -> Gate:
    """Return the limits for a repetition: of times and scores only if it measures them."""
    kept = gate if timed else replace(gate, min_speedup=None)
    return kept if scored else replace(kept, max_drop=None, min_score=None)
