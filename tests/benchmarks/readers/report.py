"""The page that the outcomes make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from frame import table

from .running import Outcome

GRADES = ("exact", "near", "differs")


def cell(outcomes: Sequence[Outcome]) -> str:
    """Return how many models of one operator are exact, near, wrong and not read."""
    counts = Counter(outcome.grade for outcome in outcomes)
    unread = sum(count for grade, count in counts.items() if grade not in GRADES)
    if not outcomes:
        return "-"
    if unread == len(outcomes):
        return "none"
    if counts["exact"] == len(outcomes):
        return f"all {len(outcomes)}"
    parts = [f"{counts['exact']} exact"]
    parts += [f"{counts['near']} by one"] * bool(counts["near"])
    parts += [f"**{counts['differs']} differ**"] * bool(counts["differs"])
    parts += [f"{unread} not read"] * bool(unread)
    return ", ".join(parts)


def overview(
    results: Mapping[str, Sequence[Outcome]], subjects: Sequence[str], columns: Sequence[str]
) -> str:
    """Return the table of models of one operator: a line for each reader, a column for each form."""
    rows = []
    for reader, outcomes in results.items():
        chosen = [o for o in outcomes if o.subject in subjects]
        rows.append([reader, *(cell([o for o in chosen if o.column == column]) for column in columns)])
    return table(["reader", *columns], rows)


def of_model(results: Mapping[str, Sequence[Outcome]], subject: str, columns: Sequence[str]) -> str:
    """Return the table of one model: shares of quantized values, and the largest difference."""
    rows = []
    for reader, outcomes in results.items():
        by_column = {o.column: o for o in outcomes if o.subject == subject}
        rows.append([reader, *(_of_one(by_column.get(column)) for column in columns)])
    return table(["reader", *columns], rows)


def _of_one(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    if outcome.what != "runs":
        return outcome.what
    if outcome.equal == 1.0:
        return "100 %"
    return f"{percent(outcome.equal)} ({percent(outcome.within_one)}), {outcome.largest:g}"


def percent(share: float) -> str:
    """Return a share, rounded down: 100 % is all of them."""
    return f"{int(1000 * share) / 10:g} %"


def troubles(outcomes: Iterable[Outcome], columns: Sequence[str]) -> str:
    """Return the lines of what one reader does not read or computes otherwise, by message."""
    groups: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.column not in columns or outcome.grade in ("exact", "near"):
            continue
        said = outcome.said or f"largest difference {outcome.largest:g}"
        key = (outcome.grade, said if outcome.grade != "differs" else "")
        detail = f" ({outcome.largest:g})" if outcome.grade == "differs" else ""
        groups.setdefault(key, []).append(f"{outcome.subject} {outcome.column}{detail}")
    rows = []
    for (what, said), places in sorted(groups.items(), key=lambda item: -len(item[1])):
        rows.append([what, f"`{escaped(said)[:160]}`" if said else "", ", ".join(places)])
    return table(["what", "says", "where"], rows)


def escaped(text: str) -> str:
    """Return text that stands in a cell as code."""
    return text.replace("|", "/").replace("`", "'")
