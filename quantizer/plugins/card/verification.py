"""A card held against the files and samples that it was made of: every value on it is compared or named.

Verifying makes the card anew and goes through both as trees (`checks_of_statements`). A value has to be
the same unless `_RULES` grants it a tolerance: a new field is compared from its first day. What is tolerated
follows from what is measured now and the user's slack: nothing that the card says makes it wider.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ....profiles.base.findings import Finding
from ....profiles.base.json_values import to_jsonable
from ....profiles.base.presentation import Presentation, Presented, Table
from ...evaluation.evaluate import Evaluation
from ...evaluation.options import Gate
from .options import Slack
from .record import Card, FileDigest

Result = Literal["same", "differs", "not checked", "told", "kept", "worse"]
"""Result of a check: "told" is a difference that refutes nothing, such as other bytes of the same weights;
"kept" and "worse" are said of the figures of a newer card (`regression`)."""

REFUTING: tuple[Result, ...] = ("differs", "worse")
"""Results that end `qprof verify` with exit code 1."""


@dataclass(frozen=True)
class Check:
    """One statement of a card, checked.

    Attributes:
        of: its subject, such as a file or a figure, or its place on the card.
        result: of the check.
        card: what the card says.
        found: what was measured or computed now; "" where nothing was.
        reason: why it was not checked, or how far off it is; "" where the rest says it.
    """

    of: str
    result: Result
    card: str
    found: str = ""
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Presented):
    """A card that was checked against files and samples.

    Attributes:
        card: its file.
        quantized_model: the file of the quantized model, or of the newer card, that it was checked against.
        checks: of its statements, those that could not be checked among them.
        evaluation: the one that was made now, or that of the newer card; None where nothing was measured.
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
    """Return whether files hold the same, whatever their names."""
    return [(f.sha256, f.bytes) for f in files] == [(f.sha256, f.bytes) for f in others]


def checks_of_unread(keys: Mapping[str, str]) -> Iterator[Check]:
    """Yield that the keys of a card that say nothing here (`load_card`) were not checked."""
    return (Check(key, "not checked", "", "", why) for key, why in keys.items())


def checks_without_figures(card: Card, why: str) -> Iterator[Check]:
    """Yield the parts of a card that are not checked because nothing is measured; `why` names the remedy."""
    yield Check("figures", "not checked", card.headline(), "", why)
    for name, value in card.to_dict().items():
        if name in ("tool", "machine", "asked", "task", "base_model") and value:
            text = value if isinstance(value, str) else ", ".join(f"{k} {v}" for k, v in value.items())
            yield Check(name, "not checked", _short(text), "", why)


# A card is checked against the card that is made now --------------------------------------------------------

MAX_SQNR_DB = 100.0
"""SQNR in dB above which two outputs differ by the order of float sums alone, and so by machine."""

Place = tuple[str | int, ...]
"""Keys and positions that lead to a value of a document."""

MISSING = object()
"""What stands for a value that one of two documents does not have."""


@dataclass(frozen=True)
class _Scope:
    """The facts that tolerances follow from."""

    found: Card  # made now
    document: Mapping[str, Any]  # the same as a document
    slack: Slack
    same_machine: bool  # measured on this machine, with these versions and threads
    same_float_files: bool  # the float files are the card's, not only their weights


@dataclass(frozen=True)
class _Rule:
    """How a value of a card is compared.

    Attributes:
        ends: scope, place and value now -> the lowest and the highest value that pass; None: only equal ones.
        scale: value, place and scope -> the compared ratio in dB; None for the value itself.
        elsewhere: why a difference on another machine is not checked; "" if it refutes there, too.
        otherwise: why a difference on the same machine is not checked; "" if it refutes.
    """

    ends: Callable[[_Scope, Place, float], tuple[float, float]] | None = None
    scale: Callable[[_Scope, Place, float], float] | None = None
    elsewhere: str = ""
    otherwise: str = ""


def _at(document: Any, place: Place) -> Any:
    for step in place:
        document = document[step]
    return document


def _around(found: float, allowed: float) -> tuple[float, float]:
    return found - allowed, found + allowed


def _count_around(found: float, allowed: float) -> tuple[float, float]:
    return max(0.0, found - allowed), found + allowed


def _decibels(scope: _Scope, _: Place, found: float) -> tuple[float, float]:
    return _around(found, scope.slack.sqnr)


def _capped(_: _Scope, __: Place, value: float) -> float:
    return min(value, MAX_SQNR_DB)


def _logarithm(_: _Scope, __: Place, value: float) -> float:
    return 20.0 * math.log10(value) if value > 0.0 else -math.inf if value == 0.0 else math.nan


def _rows(scope: _Scope, count: float) -> int:
    """Return how many of a number of rows may turn: one, by float sums of another processor, or the slack."""
    return max(1, math.floor(scope.slack.score * count / 100.0))


def _answer_count(scope: _Scope, place: Place, found: float) -> tuple[float, float]:
    return _count_around(found, _rows(scope, _at(scope.document, (*place[:-1], "total"))))


def _answer_ratio(scope: _Scope, place: Place, found: float) -> tuple[float, float]:
    total = _at(scope.document, (*place[:-1], "total"))
    return _around(found, _rows(scope, total) / max(total, 1))


def _score_slack(scope: _Scope, of: float) -> float:
    s = scope.found.evaluation.score
    assert s is not None
    if s.drop_unit.startswith("%"):
        return abs(of) * scope.slack.score / 100.0
    return max(scope.slack.score, 100.0 / s.rows if s.unit == "%" else 0.0)


def _score(scope: _Scope, _: Place, found: float) -> tuple[float, float]:
    return _around(found, _score_slack(scope, found))


def _drop(scope: _Scope, _: Place, found: float) -> tuple[float, float]:
    """Return tolerance bounds for a drop; each of both scores may take its slack."""
    s = scope.found.evaluation.score
    assert s is not None
    slack = scope.slack.score if s.drop_unit.startswith("%") else _score_slack(scope, found)
    return _around(found, 2.0 * slack)


def _ratio(scope: _Scope, found: float, spread: tuple[float, float] = (1.0, 1.0)) -> tuple[float, float]:
    slack = 1.0 + scope.slack.speedup / 100.0
    return found * spread[0] / slack, found * spread[1] * slack


def _speedup(scope: _Scope, _: Place, found: float) -> tuple[float, float]:
    """Return the ends for a speed-up: the quartiles of the rounds now, with the slack."""
    t = scope.found.evaluation.latency
    assert t is not None
    return _ratio(scope, found, (t.speedup_low / t.speedup, t.speedup_high / t.speedup))


def _time(scope: _Scope, _: Place, found: float) -> tuple[float, float]:
    return _ratio(scope, found)


def _failure(scope: _Scope, place: Place, found: float) -> tuple[float, float]:
    """Return the ends for how far a limit was missed, in its unit."""
    failure = _at(scope.document, place[:-1])
    if failure["unit"] == "dB" and failure["demand"] == "min_sqnr":
        return _decibels(scope, place, found)
    if failure["demand"] in ("max_drop", "min_score"):
        return _drop(scope, place, found)
    return found, found


_MACHINE = "measured on another machine"
_HOUR = "a time belongs to its hour"
_NAME = "a name"
_WORDS = "words"
_FIGURE = _Rule(elsewhere=_MACHINE)
_TIME = _Rule(_time, elsewhere=_MACHINE, otherwise=_HOUR)

_RULES: Mapping[str, _Rule] = {
    "tool": _Rule(elsewhere="made by another version", otherwise="made by another version"),
    "machine.*": _Rule(elsewhere="another machine, or other versions", otherwise="another machine"),
    "task": _Rule(elsewhere="the author's word", otherwise="the author's word"),
    "base_model": _Rule(elsewhere="the author's word", otherwise="the author's word"),
    "asked.data": _Rule(elsewhere=_NAME, otherwise=_NAME),
    "asked.labels": _Rule(elsewhere=_NAME, otherwise=_NAME),
    "asked.preprocess": _Rule(elsewhere=_NAME, otherwise=_NAME),
    "asked.threads": _Rule(elsewhere="run on others now", otherwise="run on others now"),
    "evaluation.float_model": _Rule(elsewhere=_NAME, otherwise=_NAME),
    "evaluation.quantized_model": _Rule(elsewhere=_NAME, otherwise=_NAME),
    "sqnr": _Rule(_decibels, _capped),
    "max_abs_value": _Rule(_decibels, _logarithm),
    "agreement.same": _Rule(_answer_count),
    "agreement.ratio": _Rule(_answer_ratio),
    "tokens.same": _Rule(_answer_count),
    "tokens.first_differences.#": _FIGURE,
    "worst_samples.#.sample": _FIGURE,
    "worst_samples.#.output": _FIGURE,
    "score.float_score": _Rule(_score),
    "score.quantized_score": _Rule(_score),
    "score.chance": _Rule(_score),
    "score.drop": _Rule(_drop),
    **{f"score.{n}": _Rule(_drop, elsewhere=_MACHINE) for n in ("drop_low", "drop_high", "spread", "added")},
    "score.is_at_chance": _FIGURE,
    "estimates.#.measured": _Rule(_decibels, _capped),
    "failures.#.measured": _Rule(_failure),
    "failures.#.missing": _Rule(_failure),
    "failures.#.reason": _Rule(elsewhere=_WORDS, otherwise=_WORDS),
    "latency.speedup": _Rule(_speedup, elsewhere=_MACHINE),
    **{f"latency.{name}": _TIME for name in ("float_ms", "quantized_ms", "speedup_low", "speedup_high")},
    "latency.rounds": _Rule(elsewhere=_MACHINE, otherwise=_HOUR),
    "latency.runs": _Rule(elsewhere=_MACHINE, otherwise=_HOUR),
    **{f"token_speeds.#.{name}": _TIME for name in ("float_rate", "quantized_rate", "speedup")},
}
"""Values that need not be equal, by the end of their place ("#" for any position). All others have to be."""

_EQUAL = _Rule()


def _rule_of(place: Place) -> _Rule:
    keys = ["#" if isinstance(step, int) else step for step in place]
    if keys[0] == "machine":
        return _RULES["machine.*"]
    for start in range(len(keys)):
        rule = _RULES.get(".".join(keys[start:]))
        if rule is not None:
            return rule
    return _EQUAL


def _number(value: Any) -> float | None:
    """Return a number of a document (non-finite ones are texts there), or None for anything else."""
    if isinstance(value, str):
        return float(value) if value in ("inf", "-inf", "nan") else None
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _without_effect(scope: _Scope, place: Place, value: Any) -> tuple[Result, str]:
    """Return "same", or that nothing would be otherwise if the card said something else in this place."""
    now = scope.found.evaluation
    if place == ("asked", "limit") and value is not None and value > now.samples:
        return "not checked", f"there are {now.samples} samples"
    if place == ("asked", "threads") and value != 1 and now.latency is None:
        return "not checked", "no figure depends on it without a time"
    return "same", ""


def _compared(scope: _Scope, place: Place, on_card: Any, found: Any) -> tuple[Result, str]:
    """Return the result for one value, and why it is none or how far off it is."""
    if on_card == found and isinstance(on_card, bool) == isinstance(found, bool):
        return _without_effect(scope, place, on_card)
    if found is not None and found is not MISSING and (on_card is None or on_card is MISSING):
        return "not checked", "the card does not say it"
    rule = _rule_of(place)
    off = ""
    numbers = _number(on_card), _number(found)
    if numbers[0] is not None and numbers[1] is not None:
        if isinstance(on_card, str) and isinstance(found, str):
            off = ""  # inf, -inf or nan, of which one is not the other
        elif rule.ends is not None:
            said, now = (
                n if rule.scale is None else rule.scale(scope, place, n) for n in (numbers[0], numbers[1])
            )
            low, high = rule.ends(scope, place, now)
            rounding = (
                1e-9 * max(1.0, abs(low), abs(high)) if math.isfinite(low) and math.isfinite(high) else 0.0
            )
            if said == now or low - rounding <= said <= high + rounding:
                return "same", ""
        off = f"{numbers[1] - numbers[0]:+.6g}"
    elif found is None or found is MISSING:
        off = "could not be measured"
    if place == ("evaluation", "float_bytes") and not scope.same_float_files:
        return "told", "other files; they are checked by themselves"
    if place[-2:] == ("latency", "speedup"):
        latency = scope.found.evaluation.latency
        if latency is not None and latency.is_unclear:
            return "not checked", "this machine is busy"
    why = rule.otherwise if scope.same_machine else rule.elsewhere
    return ("not checked", why) if why else ("differs", off)


def _leaves(on_card: Any, found: Any, place: Place) -> Iterator[tuple[Place, Any, Any]]:
    """Yield the values of two documents in the same places, MISSING where one has none."""
    if isinstance(on_card, dict) and (isinstance(found, dict) or found in (None, MISSING)):
        others = found if isinstance(found, dict) else {}
        for key in dict.fromkeys((*on_card, *others)):
            yield from _leaves(on_card.get(key, MISSING), others.get(key, MISSING), (*place, key))
    elif isinstance(on_card, list) and (isinstance(found, list) or found in (None, MISSING)):
        items = found if isinstance(found, list) else []
        for number in range(max(len(on_card), len(items))):
            said, other = (a[number] if number < len(a) else MISSING for a in (on_card, items))
            yield from _leaves(said, other, (*place, number))
    else:
        yield place, on_card, found


def _short(value: Any) -> str:
    text = "" if value is MISSING else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _name_of(place: Place) -> str:
    name = ""
    for step in place:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def _figures_with_a_name(card: Card) -> Mapping[Place, tuple[str, str]]:
    """Return the places of the figures that everybody looks at, with their names and units."""
    e = card.evaluation
    at: dict[Place, tuple[str, str]] = {
        ("evaluation", "outputs", number, "difference", "sqnr"): (f"SQNR of output '{output.name}'", " dB")
        for number, output in enumerate(e.outputs)
    }
    score_unit = f" {e.score.unit}" if e.score is not None and e.score.unit else ""
    for of in ("float", "quantized"):
        at["evaluation", "score", f"{of}_score"] = f"{e.metric} of the {of} model", score_unit
    at["evaluation", "latency", "speedup"] = "speed", " times"
    return at


SCORED = ("score", "metric", "metric_title")
"""Fields of an evaluation that need the truth."""

OF_FILES = (
    "float_bytes",
    "quantized_bytes",
    "provenance",
    "float_model",
    "quantized_model",
    "runtime",
    "provider",
)
"""Fields of an evaluation that are the same whatever the samples."""


def checks_of_statements(card: Card, found: Card, slack: Slack, unscored: str) -> Iterator[Check]:
    """Yield a check of each statement on a card, by the card made now; each value on it is in one of them.

    A figure that is better than on the card differs as well. A score may differ by a row besides the slack,
    as float sums of another processor may turn one. On another machine times are not checked, and neither are
    values that a single element decides. Figures of other samples refute nothing; limits hold for these too.
    `unscored` is why scores were not measured, or "".
    """
    then, now = card.evaluation, found.evaluation
    assert now.subject is not None
    assert then.subject is not None
    same_data = now.subject.data == then.subject.data
    yield Check(
        "data",
        "same" if same_data else "differs",
        f"{then.samples} samples, digest {then.subject.data[:16]}",
        f"{now.samples} samples, digest {now.subject.data[:16]}",
        "" if same_data else "other samples, or read otherwise: see --preprocess",
    )
    if unscored:
        yield Check("truth", "not checked", f"digest {then.subject.metric}", "", unscored)
    elif then.subject.metric or now.subject.metric:
        same_truth = (then.metric, then.subject.metric) == (now.metric, now.subject.metric)
        yield Check(
            "truth",
            "same" if same_truth else "differs",
            f"digest {then.subject.metric or '-'}",
            f"digest {now.subject.metric or '-'}",
            "" if same_truth else "other labels, or other options of the metric",
        )
    on_card, document = to_jsonable(card), to_jsonable(found)
    same_machine = (card.tool, card.machine, card.asked.threads) == (
        found.tool,
        found.machine,
        found.asked.threads,
    )
    scope = _Scope(found, document, slack, same_machine, same_bytes(card.float_model, found.float_model))
    for each in (on_card, document):
        del each["float_model"], each["quantized_model"]  # `checks_of_files`
        del each["evaluation"]["gate"]  # each limit, below
        del each["evaluation"]["subject"]["data"], each["evaluation"]["subject"]["metric"]
    not_now = {name: unscored for name in SCORED if unscored}
    if now.latency is None:
        not_now |= {"latency": "latency was not measured", "token_speeds": "latency was not measured"}
    for name, why in not_now.items():
        value = on_card["evaluation"].pop(name)
        del document["evaluation"][name]
        if value:
            said = (
                f"{then.latency.speedup:.2f} times" if name == "latency" and then.latency else _short(value)
            )
            yield Check("speed" if name == "latency" else name, "not checked", said, "", why)
    limits = {limit.name for limit in fields(Gate) if getattr(now.gate, limit.name) is not None}
    failures = on_card["evaluation"]["failures"]
    on_card["evaluation"]["failures"] = [one for one in failures if one["demand"] in limits]
    for number, one in enumerate(failures):
        if one["demand"] not in limits and getattr(then.gate, one["demand"], None) is None:
            yield Check(
                f"evaluation.failures[{number}]", "differs", _short(one["demand"]), "", "no such limit"
            )
    del on_card["evaluation"]["findings"], document["evaluation"]["findings"]
    yield from _checks_of_findings(then.findings, now.findings)
    values, counts = _checks_of_values(card, on_card, scope, same_data)
    yield from values
    yield from _checks_of_limits(then, now, unscored)
    for (branch, result), count in counts.items():
        text = f"{count} value{'s'[: count != 1]}"
        yield Check(branch, result, text, text, "" if result == "same" else "of other samples")


def _checks_of_findings(said: Sequence[Finding], found: Sequence[Finding]) -> Iterator[Check]:
    """Yield whether the findings of a card are found now, with their figures, and the other way round."""
    of = "evaluation.findings"
    for one in said:
        is_known = one in found
        reason = "" if is_known else "is not said of the models now"
        yield Check(of, "same" if is_known else "not checked", one.text, one.text if is_known else "", reason)
    for one in found:
        if one not in said:
            yield Check(of, "not checked", "", one.text, "the card does not say it")


def _checks_of_values(
    card: Card, on_card: Any, scope: _Scope, same_data: bool
) -> tuple[list[Check], Mapping[tuple[str, Result], int]]:
    """Return a check of each figure with a name and of each value that is not the same; counts of the rest.

    The rest is what is the same, and what other samples make otherwise, by branch of the card and result.
    """
    named, checks, counts = _figures_with_a_name(card), list[Check](), Counter[tuple[str, Result]]()
    for place, said, found in _leaves(on_card, scope.document, ()):
        result, reason = _compared(scope, place, said, found)
        of_data = place[0] == "evaluation" and place[1] not in OF_FILES
        if result == "differs" and of_data and not same_data:
            result = "told"
        if place in named and MISSING not in (said, found):
            of, unit = named[place]
            texts = [f"{float(value):.2f}{unit}" for value in (said, found)]
            off = f"{float(found) - float(said):+.2f}{unit}" if reason[:1] in ("+", "-") else reason
            checks.append(Check(of, result, texts[0], texts[1], off))
        elif result == "same" or (of_data and not same_data):
            counts[_name_of(place[: 2 if len(place) > 2 else 1]), result] += 1
        else:
            checks.append(Check(_name_of(place), result, _short(said), _short(found), reason))
    return checks, counts


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
        if getattr(now.gate, limit.name) is None:
            reason = unscored if limit.name != "min_speedup" else "a time"
            yield Check(of, "not checked", on_card, "", reason)
            continue
        result = after[0].result if after else "kept"
        reason = ""
        if after and after[0].measured is None:
            reason = after[0].reason
        elif after:
            reason = " ".join(filter(None, (f"{after[0].missing:.2f}", after[0].unit, "off")))
        yield Check(of, "differs" if after and not before else "same", on_card, result, reason)


def repeatable_gate(gate: Gate, *, scored: bool) -> Gate:
    """Return the limits that a repetition is held against: no times, and scores where it has them."""
    kept = replace(gate, min_speedup=None)
    return kept if scored else replace(kept, max_drop=None, min_score=None)
