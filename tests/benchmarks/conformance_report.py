"""The tables of CONFORMANCE.md."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

Record = dict[str, Any]


def tables(records: Sequence[Record], forms: Sequence[str]) -> str:
    """Return all tables as Markdown."""
    counted = [record for record in records if "excluded" not in record]
    excluded = Counter(record["excluded"].split(":")[0] for record in records if "excluded" in record)
    parts = [
        "# Models of the onnx package, through every form",
        "Written by `conformance.py`: every model is prepared, instrumented, profiled on its own data, "
        "planned with integers wherever there is a rule, written in each form, loaded and run, optimised and "
        f"not, with onnxruntime {version('onnxruntime')}; the models are those of onnx {version('onnx')}.",
        f"{len(records)} models; {len(counted)} count. The others: "
        + "; ".join(f"{reason} ({count})" for reason, count in excluded.most_common())
        + ".",
        _passing(counted, forms),
        _quality(counted, forms),
        "## Refused, invalid or crashed\n\n" + _troubles(counted, forms),
        "## Why nodes stay float\n\n" + _reasons(counted),
        "## Least signal over noise\n\n" + _worst(counted, forms),
        "## Optimised and not\n\n" + _spread(counted, forms),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def _passes(record: Record, form: str) -> bool:
    return "sqnr" in record["forms"].get(form, {})


def _passing(records: Sequence[Record], forms: Sequence[str]) -> str:
    rows = []
    kinds = dict.fromkeys(record["kind"] for record in records)
    for kind in [*kinds, "all"]:
        those = [record for record in records if kind in (record["kind"], "all")]
        quantized = sum(any(n for k, n in r.get("counts", {}).items() if k != "float") for r in those)
        identical = sum(record.get("identical", False) for record in those)
        done = [sum(_passes(record, form) for record in those) for form in forms]
        rows.append([kind, len(those), identical, quantized, *done])
    head = ["kind", "models", "instrumented: same bits", "with a quantized node", *forms]
    return "## Loaded and run, by form\n\n" + _table(head, rows)


def _quality(records: Sequence[Record], forms: Sequence[str]) -> str:
    rows = []
    for form in forms:
        found = [record["forms"][form] for record in records if _passes(record, form)]
        noisy = sorted(entry["sqnr"] for entry in found if entry["sqnr"] is not None)
        low = [sum(value < limit for value in noisy) for limit in (10, 20, 30)]
        middle = f"{statistics.median(noisy):.1f}" if noisy else "-"
        rows.append([form, len(found), len(found) - len(noisy), middle, *low])
    head = ["form", "run", "equal to float", "median SQNR dB", "below 10", "below 20", "below 30"]
    return "## Signal over noise\n\n" + _table(head, rows)


def _troubles(records: Sequence[Record], forms: Sequence[str]) -> str:
    rows = []
    for record in records:
        for word in ("refused", "crash"):
            if word in record:
                rows.append([record["name"], "all", word, _short(record[word])])
        for form in forms:
            entry = record["forms"].get(form, {})
            for word in ("refused", "invalid", "crash"):
                if word in entry:
                    rows.append([record["name"], form, word, _short(entry[word])])
    return _table(["model", "form", "what", "why"], rows) if rows else "None."


def _short(text: str) -> str:
    return " ".join(text.split())[:240]


def _reasons(records: Sequence[Record]) -> str:
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.get("reasons", {}))
    return _table(["nodes", "reason"], [[count, reason] for reason, count in total.most_common()])


def _worst(records: Sequence[Record], forms: Sequence[str], count: int = 30) -> str:
    rows = []
    for record in records:
        values = [record["forms"].get(form, {}).get("sqnr") for form in forms]
        known = [value for value in values if value is not None]
        if known:
            cells = ["exact" if v is None else f"{v:.1f}" for v in values]
            rows.append((min(known), [record["name"], *cells]))
    rows.sort(key=lambda row: row[0])
    return _table(["model", *forms], [cells for _, cells in rows[:count]])


def _spread(records: Sequence[Record], forms: Sequence[str], least: float = 2.0) -> str:
    """Return the models that onnxruntime's optimisations make worse than they are written."""
    rows = []
    for record in records:
        values = [record["forms"].get(form, {}).get("spread") for form in forms]
        if any(value is not None and value > least for value in values):
            rows.append([record["name"], *("-" if value is None else f"{value:.1f}" for value in values)])
    said = f"Models that lose more than {least:g} dB to onnxruntime's optimisations, and how many: "
    return said + (f"{len(rows)}.\n\n" + _table(["model", *forms], rows) if rows else "none.")
