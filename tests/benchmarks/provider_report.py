"""The page PROVIDERS.md, from the results of providers.py and provider_operators.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
NOTES = Path(__file__).with_name("provider_notes.md")


def write(page: Path, results: Path) -> None:
    """Write the page from the files of results in a folder."""
    parts = []
    for name in ("qnn", "openvino"):
        found = json.loads((results / f"providers-{name}.json").read_text(encoding="utf-8"))
        rows = table(MODEL_HEAD, (model_cells(row) for row in found["rows"].values()))
        parts.append(f"### {found['title']}\n\n{rows}\n")
    operators = table(OPERATOR_HEAD, operator_cells(results)).rstrip()
    notes = NOTES.read_text(encoding="utf-8")
    text = notes.replace("{models}\n", "".join(parts)).replace("{operators}", operators)
    page.write_text(text, encoding="utf-8")


MODEL_HEAD = ("model", "planned", "taken", "left", "equal", "onnxruntime", "score: float, quantized, there")
OPERATOR_HEAD = (
    "operator",
    "listed: qnn",
    "QNN, uint8",
    "QNN, uint16",
    "listed: openvino",
    "OpenVINO, uint8",
)
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


def model_cells(row: Record) -> list[str]:
    if row["note"]:
        return [row["model"], f"does not run: {row['note']}", *[""] * 5]
    scores = ", ".join(f"{score:.3f}" for score in row["scores"])
    return [
        row["model"],
        row["quantized"],
        _nodes(row["taken"]),
        _nodes(row["left"]) or "-",
        _equal(row["agreement"], row["steps"]),
        _equal(row["cpu_agreement"], row["cpu_steps"]),
        f"{scores} ({row['samples']} samples)",
    ]


def _nodes(counts: Mapping[str, int]) -> str:
    nodes = sum(count for name, count in counts.items() if name not in CONVERSIONS)
    conversions = sum(count for name, count in counts.items() if name in CONVERSIONS)
    both = ((nodes, "node"), (conversions, "conversion"))
    return ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for count, what in both if count)


def _equal(share: float, steps: float) -> str:
    if not share and not steps:
        return "none before the outputs"
    if 0.9999 <= share < 1.0:
        return f"over 99.99 %, {steps:g}"
    return "all" if share == 1.0 else f"{100 * share:.4g} %, {steps:g}"


def operator_cells(results: Path) -> Iterator[list[str]]:
    """Yield a line for each operator that a target lists or a runtime computes on integers."""
    files = [results / f"operators-{name}.json" for name in ("qnn", "qnn-uint16", "openvino")]
    found = [{r["operator"]: r for r in json.loads(f.read_text(encoding="utf-8"))} for f in files]
    for operator in found[0]:
        eight, sixteen, openvino = (rows[operator] for rows in found)
        if any(row["listed"] or row["what"] == "integers" for row in (eight, openvino)):
            yield [
                operator,
                "yes" if eight["listed"] else "",
                _tried(eight),
                _tried(sixteen),
                "yes" if openvino["listed"] else "",
                _tried(openvino),
            ]


def _tried(row: Record) -> str:
    return row["what"] if row["steps"] is None else f"{row['what']}, {row['steps']:g}"


def table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
