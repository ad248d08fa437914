"""junit.xml: a test case for each gate. Pure.

It keeps to the schema that most readers check, that of Ant's JUnit task (JUnit.xsd); a report has no time of
its own, so that the same results give the same bytes. Cases are named by files without their folders: a
service knows a case by its name from one run to the next.
"""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from ..content import GateResult, Report, file_name

NO_TIME = "1970-01-01T00:00:00"
"""Stands where the schema demands a time."""


def junit(report: Report) -> str:
    """Return the gates as JUnit XML: one suite with a case for each."""
    failed = sum(not gate.passed for gate in report.gates)
    root = ElementTree.Element("testsuites")
    counts = {"tests": str(len(report.gates)), "failures": str(failed), "errors": "0", "time": "0"}
    title, seen = " ".join(map(file_name, report.title.split(" "))), Counter[str]()
    names = {"name": _allowed(title), "package": "qprof", "id": "0", "hostname": "localhost"}
    suite = ElementTree.SubElement(root, "testsuite", {**names, **counts, "timestamp": NO_TIME})
    properties = ElementTree.SubElement(suite, "properties")
    for fact in report.provenance:
        ElementTree.SubElement(properties, "property", name=_allowed(fact.name), value=_allowed(fact.text))
    for gate in report.gates:
        seen[gate.title] += 1
        _case(suite, gate, title, seen[gate.title])
    ElementTree.SubElement(suite, "system-out").text = _allowed(report.verdict.sentence)
    ElementTree.SubElement(suite, "system-err").text = _allowed("\n".join(report.notes))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, gate: GateResult, title: str, number: int) -> None:
    """Add a case; `number` counts those of the same name from 1."""
    name = gate.title if number == 1 else f"{gate.title} {number}"
    attributes = {"name": _allowed(name), "classname": _allowed(f"qprof.{title}"), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if not gate.passed:
        words = _allowed("; ".join(gate.failures))
        ElementTree.SubElement(case, "failure", message=words, type="gate").text = words


def _allowed(text: str) -> str:
    """Return a text without what XML has no sign for."""
    return "".join(c if _is_allowed(ord(c)) else "\N{REPLACEMENT CHARACTER}" for c in text)


def _is_allowed(code: int) -> bool:
    return code in (9, 10, 13) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or code > 0xFFFF
