"""Findings: whatever qprof has to say about a model, its data, a plan or a result, as linters say it.

A finding is a code of one table (`Code`), the sentence about this case, its subject, its figures and its
remedy. How grave it is follows from the code (`Severity`). The terminal prints `Finding.line`, documents in
JSON hold the fields; `docs/reference/findings.md` is printed from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Figure = str | int | float
"""A name or a number that a sentence tells; numbers in the unit of the sentence."""


class Severity(StrEnum):
    """How grave a finding is, the gravest first: its exit code, and whether it is printed."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Severity:
        """Return the member; the word alone is its value."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    ALARM = "alarm", "a limit is not kept, or an output is worth nothing: exit code 1; always printed"
    DOUBT = (
        "doubt",
        "something speaks against all that was measured: exit code 1 where a limit was given; always printed",
    )
    WARNING = "warning", "to be looked at; the exit code stays; always printed"
    NOTE = "note", "good to know; the exit code stays; a command prints its first two, all with --verbose"


class Code(StrEnum):
    """Each kind of finding: its word, how grave it is, and its meaning for the page of the documentation."""

    severity: Severity
    meaning: str

    def __new__(cls, word: str, severity: Severity, meaning: str) -> Code:
        """Return the member; the word alone is its value."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.severity = severity
        member.meaning = meaning
        return member

    # The data of a profile ------------------------------------------------------------------------------
    PIXELS = (
        "pixels",
        Severity.WARNING,
        "An input ranges over 0..255 as pixels do, and the model does not begin by scaling it. Samples that "
        "are not normalised as in training give ranges that are no use.",
    )
    CHANNELS_LAST = (
        "channels-last",
        Severity.WARNING,
        "The axes of an input look like NHWC, and the model does not begin by moving them.",
    )
    CONSTANT_INPUT = (
        "constant-input",
        Severity.WARNING,
        "A float input has one value everywhere, in every sample.",
    )
    ZERO_STATE = (
        "zero-state",
        Severity.NOTE,
        "A float input is zero or empty in all samples, as a state is at its start. Ranges of what it "
        "becomes with later steps were not seen.",
    )
    EQUAL_SAMPLES = ("equal-samples", Severity.WARNING, "All samples are the same one.")
    FEW_SAMPLES = ("few-samples", Severity.NOTE, "Ranges of so few samples are seldom those of more.")
    GROWING = (
        "growing",
        Severity.NOTE,
        "The last samples still widened the ranges: more would widen them further.",
    )
    ONE_SAMPLE = ("one-sample", Severity.NOTE, "A single sample widens the range of a tensor much.")
    OUTLIER = (
        "outlier",
        Severity.NOTE,
        "A sample alone sets unusually many limits of ranges: it may be damaged, or of another kind.",
    )


@dataclass(frozen=True)
class Finding:
    """One thing that qprof has to say.

    Attributes:
        code: the kind of finding.
        severity: how grave it is: that of the code.
        sentence: complete by itself, with the names and figures that a person needs.
        subject: name of the tensor, node, output, sample, file or option that it is about; "" for the whole.
        figures: the names and numbers of the sentence, for programs.
        remedy: what to do, or to ask oneself; "" where nothing need be done.
    """

    code: Code
    severity: Severity = field(init=False, default=Severity.NOTE)
    sentence: str
    subject: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    remedy: str = ""

    def __post_init__(self) -> None:
        """Take the severity of the code."""
        object.__setattr__(self, "severity", self.code.severity)

    @property
    def text(self) -> str:
        """The sentence and the remedy."""
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence

    @property
    def line(self) -> str:
        """The finding as terminals show it, as in "note: 3 samples are few; give at least 32"."""
        severity = self.severity.upper() if self.severity is Severity.ALARM else self.severity
        return f"{severity}: {self.text}"

    def __str__(self) -> str:
        return self.text


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once, the gravest first, otherwise in the order in which they were made."""
    order = list(Severity)
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.severity)))


def of_severity(findings: Iterable[Finding], *severities: Severity) -> tuple[Finding, ...]:
    """Return the findings of these severities, in their order."""
    return tuple(finding for finding in findings if finding.severity in severities)
