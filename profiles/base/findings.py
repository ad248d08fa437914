"""Findings: notes, warnings and alarms about a model, its data, a plan or a result.

A finding is a code, a sentence about this case, its subject, its figures and its remedy. `findings.yaml` has
the severity and the meaning of each code; `docs/reference/findings.md` is printed from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

Figure = str | int | float
"""A name or a number that a sentence tells; numbers in the unit of the sentence."""


class Severity(StrEnum):
    """How grave a finding is, the gravest first: its exit code, and whether it is printed."""

    ALARM = "alarm"
    DOUBT = "doubt"
    WARNING = "warning"
    NOTE = "note"


class Code(StrEnum):
    """Each kind of finding."""

    PIXELS = "pixels"
    CHANNELS_LAST = "channels-last"
    CONSTANT_INPUT = "constant-input"
    ZERO_STATE = "zero-state"
    EQUAL_SAMPLES = "equal-samples"
    FEW_SAMPLES = "few-samples"
    RANDOM_DATA = "random-data"
    NON_FINITE = "non-finite"
    COUNTED_TWICE = "counted-twice"
    READING_ASSUMED = "reading-assumed"
    CLASSES_NUMBERED = "classes-numbered"
    FILE_PASSED_OVER = "file-passed-over"
    NUMPY_OBSERVERS = "numpy-observers"
    NOISE_UNMEASURED = "noise-unmeasured"
    NO_CHECK_SAMPLES = "no-check-samples"
    CHECK_SAMPLES_KEPT = "check-samples-kept"
    PROFILE_KEPT = "profile-kept"
    OPSET_RAISED = "opset-raised"
    WIDENED = "widened"
    GATE_FAILED = "gate-failed"
    GATE_NOT_PROVEN = "gate-not-proven"
    OUTPUT_DESTROYED = "output-destroyed"
    STAYS_FLOAT = "stays-float"
    RANGES_ONLY = "ranges-only"
    UNCOMPARED_OUTPUT = "uncompared-output"
    OUTPUT_KIND = "output-kind"
    INT8_CACHES = "int8-caches"
    NO_16_BIT_KERNEL = "no-16-bit-kernel"
    BELOW_WISH = "below-wish"
    INT8_SAVES_TOO_LITTLE = "int8-saves-too-little"
    NO_CHANNELS = "no-channels"
    ESTIMATED_ONLY = "estimated-only"
    NOISY_PLAN = "noisy-plan"
    WIDER_WEIGHTS = "wider-weights"
    LIMIT_EXCEEDED = "limit-exceeded"
    STAYS_FLOAT32 = "stays-float32"
    FLOAT16_LOSES = "float16-loses"
    RUNS_ELSEWHERE = "runs-elsewhere"
    FREE_SHAPES = "free-shapes"
    NOT_TEST_RUN = "not-test-run"
    STEP_LEFT_OUT = "step-left-out"
    LEFT_IN_FLOAT = "left-in-float"
    FLOAT_IS_FASTER = "float-is-faster"
    CLIP_LEFT_OUT = "clip-left-out"
    OTHER_WEIGHTS = "other-weights"
    SAME_DATA = "same-data"
    IMPORT_LOSES = "import-loses"
    IMPORT_ASSUMED = "import-assumed"
    EXPORT_LOSES = "export-loses"
    REPORT_WITHOUT_ESTIMATES = "report-without-estimates"
    SWAPPED_MODELS = "swapped-models"
    FLOAT_IS_QUANTIZED = "float-is-quantized"
    OTHER_FLOAT_MODEL = "other-float-model"
    NOTHING_QUANTIZED = "nothing-quantized"
    LARGER_THAN_FLOAT = "larger-than-float"
    OTHER_GRAPH = "other-graph"
    OTHER_PLAN = "other-plan"
    DOUBTFUL_TRUTH = "doubtful-truth"
    SCORES_MOVED = "scores-moved"
    METRIC_ASSUMED = "metric-assumed"
    MAIN_CAUSE = "main-cause"
    NO_VERDICT = "no-verdict"
    NO_INT8_ARITHMETIC = "no-int8-arithmetic"
    KEEP_FLOAT = "keep-float"
    SEEN_SAMPLES = "seen-samples"
    FEW_HELD_OUT = "few-held-out"
    CHOSEN_ON_HELD_OUT = "chosen-on-held-out"
    TARGET_MISSED = "target-missed"
    TARGET_UNVERIFIED = "target-unverified"
    BUDGET_ENDED = "budget-ended"
    NO_BETTER_PLAN = "no-better-plan"
    FALLBACK_TAKEN = "fallback-taken"
    TARGET_ASSUMED = "target-assumed"
    SETTING_UNREAD = "setting-unread"
    SATURATING_KERNELS = "saturating-kernels"

    @property
    def severity(self) -> Severity:
        """How grave its findings are."""
        return _severities()[self]


ON_SAMPLES = (Code.PIXELS, Code.CHANNELS_LAST, Code.EQUAL_SAMPLES, Code.CONSTANT_INPUT, Code.ZERO_STATE)
"""Hints that the samples may not be those that the model will see."""


@cache
def table() -> Mapping[Severity, Any]:
    """Return the meaning of each severity, and of its codes, by `findings.yaml`."""
    from .strict_yaml import parse

    document: Any = parse((files(__package__) / "findings.yaml").read_text("utf-8"))
    return {Severity(name): entry for name, entry in document.items()}


@cache
def _severities() -> Mapping[str, Severity]:
    return {code: severity for severity, entry in table().items() for code in entry["codes"]}


@dataclass(frozen=True)
class Finding:
    """One thing that qprof has to say.

    Attributes:
        code: the kind of finding.
        severity: how grave it is: that of the code.
        sentence: complete by itself, with the names and figures that a person needs.
        subject: name of the tensor, node, output, sample, file or option that it is about; "" for the whole.
        figures: the names and numbers of the sentence, for programs.
        remedy: what to do or check; "" if nothing needs to be done.
    """

    code: Code
    severity: Severity = field(init=False, default=Severity.NOTE)
    sentence: str
    subject: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    remedy: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", self.code.severity)

    @property
    def text(self) -> str:
        """The sentence and the remedy."""
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence

    @property
    def coded_text(self) -> str:
        """The text after the code, under which the documentation lists findings."""
        return f"[{self.code}] {self.text}"

    @property
    def label(self) -> str:
        """The severity as people read it: an alarm in capitals, that of a gate as its result; or "cause"."""
        if self.code in _LABELS:
            return _LABELS[self.code]
        return self.severity.upper() if self.severity is Severity.ALARM else self.severity.value

    @property
    def line(self) -> str:
        """The finding as terminals show it, as in "note: 3 samples are few; give at least 32"."""
        return f"{self.label}: {self.text}"

    def __str__(self) -> str:
        return self.text


_LABELS: Mapping[Code, str] = {
    Code.GATE_FAILED: "FAILED",
    Code.GATE_NOT_PROVEN: "NOT PROVEN",
    Code.MAIN_CAUSE: "cause",
}


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once, the gravest first; equally grave ones in the order of their making."""
    order = list(Severity)
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.severity)))


def listed(findings: Iterable[Finding], codes: bool = False) -> tuple[tuple[str, str], ...]:
    """Return label and text of each finding once, the gravest first; with `codes` after "[few-samples] "."""
    return tuple((one.label, one.coded_text if codes else one.text) for one in gravest_first(findings))


def rest_text(findings: Iterable[Finding]) -> str:
    """Return how many findings are not printed, and their codes, the most frequent first."""
    counts = Counter(str(one.code) for one in findings)
    codes = (code if number == 1 else f"{number} {code}" for code, number in counts.most_common())
    return f"{counts.total()} more with --verbose: {', '.join(codes)}"


def of_severity(findings: Iterable[Finding], *severities: Severity) -> tuple[Finding, ...]:
    """Return the findings of these severities, in their order."""
    return tuple(finding for finding in findings if finding.severity in severities)
