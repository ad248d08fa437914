"""The files of a report, written into a folder whole or not at all.

report.html is in `html`; here are report.md, a summary for continuous integration, junit.xml, a test case for
each gate, and report.json, the record itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from xml.etree import ElementTree

from ....profiles.base.errors import ConfigError
from ....profiles.base.json_values import to_jsonable
from ....profiles.base.output_files import replacing_together, write_atomically
from ....profiles.base.presentation import decibels, percent, size_text
from .content import Report, file_name
from .figures import percent_text, visible
from .html import page

FORMAT = "qprof-report/1"
"""Name and version of report.json."""


def report_texts(report: Report) -> dict[str, str]:
    """Return the files of a report by name; the same report gives the same bytes."""
    document = {"format": FORMAT, **to_jsonable(report)}
    return {
        "report.html": page(report),
        "report.md": markdown(report),
        "junit.xml": junit(report),
        "report.json": json.dumps(document, indent=1, allow_nan=False) + "\n",
    }


def write_report(report: Report, folder: str | os.PathLike[str]) -> None:
    """Write the files of a report into a folder, which is made if it is missing; other files in it stay."""
    where = Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{where}: cannot be made into a folder ({error.strerror}); choose another name"
        ) from None
    with replacing_together() as batch:
        for name, text in report_texts(report).items():
            write_atomically(where / name, text, batch)


# report.md --------------------------------------------------------------------------------------------------

SIGNS = {
    "good": "✅",
    "passed": "✅",
    "fair": "🟡",
    "poor": "❌",
    "failed": "❌",
    "not proven": "⚠️",
    "none": "❔",
}

MAX_LISTED = 5
"""Tensors, changes and drifts that are listed."""


def markdown(report: Report) -> str:
    """Return the verdict, the gates, the worst layers and drift: short."""
    lines = "\n".join(_lines(report)).split("\n")
    return "\n".join(a for a, b in zip(lines, [*lines[1:], "end"], strict=True) if a or b) + "\n"


def _lines(report: Report) -> Iterator[str]:
    verdict = report.verdict
    yield f"## {SIGNS[verdict.level]} {_text(report.title)}: {verdict.words}\n"
    yield _text(verdict.sentence) + "\n"
    yield from (f"* {_text(finding.text)}" for finding in verdict.findings)
    yield from _table(("", ""), _figures(report))
    gates = [
        (
            _code(g.name),
            g.limit_text,
            f"{SIGNS[g.result]} {g.result}",
            _text("; ".join(g.failures)),
        )
        for g in report.gates
    ]
    yield from _table(("gate", "limit", "result", "where"), gates)
    compared = [one for one in report.layers if one.effective and one.tensor not in report.equalized]
    worst = sorted(compared, key=lambda one: float(one.effective.sqnr))[:MAX_LISTED]
    tensors = [(_code(one.tensor), one.op_type, decibels(one.effective.sqnr)) for one in worst]
    yield from _table(("worst tensors", "made by", "SQNR dB"), tensors)
    if (night := report.drift) is not None:
        result = "✅ within limits" if night.passed else "❌ exceeds limits"
        yield f"### {_text(night.new_profile)}{f': {result}' if night.gated else ''}\n"
        drifts = [
            (
                _code(t.tensor),
                "-" if t.js_distance is None else f"{t.js_distance:.3g}",
                percent_text(t.clipping_rate),
                f"{t.range_growth:.3g}",
            )
            for t in night.worst(MAX_LISTED)
        ]
        yield from _table(("tensor", "JS distance", "clipped", "range growth"), drifts)
    if not report.what_ifs:
        return
    yield "<details><summary>What to try</summary>\n"
    for change in report.what_ifs[:MAX_LISTED]:
        yield f"{_text(change.brings)}\n"
        yield f"    qprof quantize ... {' '.join(change.options.splitlines())}\n"
    yield "</details>"


def _figures(report: Report) -> Iterator[tuple[str, ...]]:
    if report.task is not None:
        yield _text(report.task.name), _text(report.task.words)
    if report.outputs:
        worst = report.outputs[0]
        how = f"{decibels(worst.sqnr)} dB {'expected' if worst.measured is None else 'measured'}"
        yield "worst output", f"{_code(worst.name)}: {how}"
    if (size := report.cost) is not None:
        yield "size", f"{size_text(size.quantized_bytes)}, {size.change}"
    if report.speed is not None:
        speed = report.speed
        times = (
            f"unclear, {speed.low:.2f} to {speed.high:.2f}" if speed.is_unclear else f"{speed.speedup:.2f}"
        )
        yield "speed", f"{times} times float, {speed.how}"
    if report.int8_share is not None:
        yield f"in {report.computes_in}", f"{percent(report.int8_share, 1)} of the arithmetic"
    yield from ((name, _text(text)) for name, text in report.facts.items())


def _table(
    header: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]
) -> Iterator[str]:
    """Yield the lines of a table, without columns that are empty in all rows."""
    lines = list(rows)
    known = [any(row[at] != "-" for row in lines) for at in range(len(header))]
    header, *lines = [tuple(compress(line, known)) for line in (header, *lines)]
    if lines:
        yield ""
        for line in (header, ["---"] * len(header), *lines):
            yield f"| {' | '.join(line)} |"
        yield ""


def _text(words: str) -> str:
    """Return a text free of markup; names of models and tensors may hold anything."""
    words = visible(" ".join(words.split()))
    for sign in ("\\", "|", "*", "_", "`", "[", "#", "@"):
        words = words.replace(sign, f"\\{sign}")
    return words.replace("&", "&amp;").replace("<", "&lt;")


def _code(name: str) -> str:
    """Return a name as code, or escaped if code cannot contain it."""
    words = visible(" ".join(name.split()))
    return _text(words) if "`" in words or "|" in words or not words else f"`{words}`"


# junit.xml --------------------------------------------------------------------------------------------------


def junit(report: Report) -> str:
    """Return the gates as JUnit XML: one suite with a case for each."""
    failed = sum(not gate.passed for gate in report.gates)
    root = ElementTree.Element("testsuites")
    counts = {"tests": str(len(report.gates)), "failures": str(failed), "errors": "0", "time": "0"}
    title = " ".join(map(file_name, report.title.split(" ")))
    names = {"name": _xml_text(title), "package": "qprof", "id": "0", "hostname": "localhost"}
    suite = ElementTree.SubElement(root, "testsuite", {**names, **counts, "timestamp": "1970-01-01T00:00:00"})
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in report.provenance.items():
        ElementTree.SubElement(properties, "property", name=_xml_text(name), value=_xml_text(text))
    for gate in report.gates:
        attributes = {"name": _xml_text(gate.title), "classname": _xml_text(f"qprof.{title}"), "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if not gate.passed:
            words = _xml_text("; ".join(gate.failures))
            ElementTree.SubElement(case, "failure", message=words, type="gate").text = words
    ElementTree.SubElement(suite, "system-out").text = _xml_text(report.verdict.sentence)
    ElementTree.SubElement(suite, "system-err").text = _xml_text(
        "\n".join(finding.line for finding in report.findings)
    )
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml_text(text: str) -> str:
    """Return a text without the characters that XML has no sign for."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)
