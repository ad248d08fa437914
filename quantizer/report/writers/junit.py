"""junit.xml: a test case for each gate. Pure."""

from __future__ import annotations

from xml.etree import ElementTree

from ..content import GateResult, Report


def junit(report: Report) -> str:
    """Return the gates as JUnit XML: one suite with a case for each; none but the verdict without gates."""
    failed = sum(not gate.passed for gate in report.gates)
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_allowed(f"qprof {report.title}"),
        tests=str(len(report.gates)),
        failures=str(failed),
        errors="0",
        skipped="0",
        time="0",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for fact in report.provenance:
        ElementTree.SubElement(properties, "property", name=_allowed(fact.name), value=_allowed(fact.text))
    for gate in report.gates:
        _case(suite, gate, report.title)
    ElementTree.SubElement(suite, "system-out").text = _allowed(report.verdict.sentence)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, gate: GateResult, title: str) -> None:
    name = gate.name if gate.limit is None else f"{gate.name} {gate.limit:g} {gate.unit}".strip()
    case = ElementTree.SubElement(
        suite, "testcase", classname=_allowed(f"qprof.{title}"), name=_allowed(name), time="0"
    )
    if not gate.passed:
        words = _allowed("; ".join(gate.failures))
        ElementTree.SubElement(case, "failure", message=words, type="gate").text = words


def _allowed(text: str) -> str:
    """Return a text without what XML has no sign for."""
    return "".join(
        c
        if c in "\t\n\r" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE or ord(c) > 0xFFFF
        else "\N{REPLACEMENT CHARACTER}"
        for c in text
    )
