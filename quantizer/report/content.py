"""What a report says: frozen records, which every writer reads and `qprof schema report` publishes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...profiles.base.atomic_files import write_atomically
from ...profiles.base.presentation import Presentation, Presented, Table, decibels
from .records import (
    DriftRecord,
    FloatGroupRecord,
    NodeRecord,
    NoiseBudget,
    SharedGroup,
    TensorNoiseRecord,
    TensorRecord,
)


@dataclass(frozen=True)
class Fact:
    """A name and what is said of it.

    Attributes:
        name: of the fact.
        text: for people.
    """

    name: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """What to think of the model.

    Attributes:
        level: "failed" where a gate failed; else the grade, or without one "passed" (gates) or "unknown".
        sentence: why.
        causes: what lies at the bottom of it, as sentences.
        grade: "good", "fair" or "poor", whatever the gates say; "none" where there is no telling.
    """

    level: str
    sentence: str
    causes: tuple[str, ...] = ()
    grade: str = "none"

    @property
    def grade_besides(self) -> str:
        """The grade in words where the level is another; "" elsewhere."""
        return "" if self.grade in ("none", self.level) else f"grade {self.grade}"

    @property
    def words(self) -> str:
        """The level, and the grade where it is another."""
        return f"{self.level} ({self.grade_besides})" if self.grade_besides else self.level


@dataclass(frozen=True)
class Size:
    """The size of the model files.

    Attributes:
        float_bytes: of the float model, external data included.
        quantized_bytes: of the quantized one; None where it is not known.
        is_estimated: whether the second is the first less what the quantized constants save.
    """

    float_bytes: int
    quantized_bytes: int | None
    is_estimated: bool = False


@dataclass(frozen=True)
class Speed:
    """The time of one run.

    Attributes:
        float_ms, quantized_ms: milliseconds.
        speedup: their ratio; above 1 the quantized model is faster.
        low, high: its quartiles; None where it was not measured.
        how: "predicted" from a table of kernels, or "measured".
        where: the target, or threads and samples.
    """

    float_ms: float
    quantized_ms: float
    speedup: float
    low: float | None
    high: float | None
    how: str
    where: str


@dataclass(frozen=True)
class OutputQuality:
    """How near an output is to that of the float model.

    Attributes:
        name: of the output.
        estimated: SQNR in dB that was estimated when the plan was made; None where it is not known.
        low, high: the band that is expected of it, dB.
        measured: SQNR in dB on samples; None without samples.
        cosine: similarity of both outputs, -1 to 1; None without samples.
        agreement: share of equal answers, 0 to 1; None where the output is no answer.
        kind: what it is, in words; "" where that is not known.
        needed: dB from which on such an output is good, as measured; None where that is not known.
    """

    name: str
    estimated: float | None = None
    low: float | None = None
    high: float | None = None
    measured: float | None = None
    cosine: float | None = None
    agreement: float | None = None
    kind: str = ""
    needed: float | None = None


def file_name(path: str) -> str:
    """Return the last part of a path, of this system or another, or of a URL."""
    return path.rstrip("/").replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True)
class GateResult:
    """One limit, held against what was measured.

    Attributes:
        name: of the option, as in "--min-sqnr".
        limit: its value; None for one that is no number, such as a baseline.
        unit: of the limit.
        passed: whether it is kept.
        failures: where it is not, and by how much, as sentences.
        subject: what is held against it, where there are several: a profile; else "".
    """

    name: str
    limit: float | None
    unit: str
    passed: bool
    failures: tuple[str, ...] = ()
    subject: str = ""

    @property
    def title(self) -> str:
        """Its name with the limit, and the file that is held against it, wherever that lies."""
        words = (self.name, self.limit_text, f"({file_name(self.subject)})" if self.subject else "")
        return " ".join(filter(None, words))

    @property
    def limit_text(self) -> str:
        """The limit with its unit; "" for none."""
        return "" if self.limit is None else f"{self.limit:g} {self.unit}".strip()


@dataclass(frozen=True)
class WhatIf:
    """A change of the settings and what it brings.

    Attributes:
        title: what changes, in a few words.
        command: to copy.
        output: whose SQNR is given.
        sqnr: in dB, after the change; None where that is not known.
        gained: dB that it gains; None as above.
        speedup: over the float model; None where no times are known.
        added_us: microseconds that it costs, predicted; None as above.
        added_bytes: bytes that the file grows by, as constants are float; None where that is not known.
        nodes: what stays float by it.
        is_measured: whether it was tried on samples.
        options: of `qprof quantize` that make it.
    """

    title: str
    command: str
    output: str
    sqnr: float | None
    gained: float | None
    speedup: float | None
    added_us: float | None
    added_bytes: int | None
    nodes: tuple[str, ...] = ()
    is_measured: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampleRecord:
    """A sample with extreme values, or one on which the models differ most.

    Attributes:
        sample: its name.
        extremes: number of tensors whose smallest or largest value it made.
        clipped: number of quantized tensors in which its extreme values saturate.
        sqnr: of the output that differs most on it, in dB; None where it is none of the most different ones.
    """

    sample: str
    extremes: int
    clipped: int
    sqnr: float | None = None


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a tuning.

    Attributes:
        settings: name of its base.
        kept_float: nodes that it kept float.
        quantized: nodes on integers.
        drop: of the score, in percentage points; None where it was not scored.
        value: of the objective; None where it has none.
        chosen: whether it is the result.
        error: why it could not be run, else "".
    """

    settings: str
    kept_float: int
    quantized: int
    drop: float | None
    value: float | None
    chosen: bool
    error: str


@dataclass(frozen=True, repr=False)
class Report(Presented):
    """Everything that a report shows; what is not known is empty or None.

    Attributes:
        title: names of the models.
        tool: name and version of the writer.
        verdict: what to think of it.
        size, speed: of both models.
        int8_share: share of the arithmetic that is done in integers, 0 to 1.
        kinds: number of nodes of each kind.
        outputs: how near they are to those of the float model.
        facts: other results, such as accuracy.
        gates: limits that were given.
        what_ifs: changes that would bring something.
        noise: where the noise of the outputs comes from, the output with the lowest SQNR first.
        tensor_noise: estimated and measured noise, in graph order.
        tensors: activations in graph order.
        nodes: in graph order.
        float_groups: why nodes stay float, what takes most time first.
        shared: groups of activations with one scale.
        samples: those that stand out.
        drift: newer profiles against the one of the plan, in the order given.
        trials: of a tuning.
        notes: remarks.
        provenance: where all of it comes from.
    """

    title: str
    tool: str
    verdict: Verdict
    size: Size | None = None
    speed: Speed | None = None
    int8_share: float | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[OutputQuality, ...] = ()
    facts: tuple[Fact, ...] = ()
    gates: tuple[GateResult, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    noise: tuple[NoiseBudget, ...] = ()
    tensor_noise: tuple[TensorNoiseRecord, ...] = ()
    tensors: tuple[TensorRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    float_groups: tuple[FloatGroupRecord, ...] = ()
    shared: tuple[SharedGroup, ...] = ()
    samples: tuple[SampleRecord, ...] = ()
    drift: tuple[DriftRecord, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: tuple[Fact, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all gates passed."""
        return all(gate.passed for gate in self.gates)

    def headline(self) -> str:
        """Return the models and the verdict."""
        return f"{self.title}: {self.verdict.words}, {self.verdict.sentence}"

    def presentation(self) -> Presentation:
        """Return the outputs, the gates and what to try."""
        outputs = tuple((o.name, decibels(o.estimated), decibels(o.measured)) for o in self.outputs)
        gates = tuple((g.name, "passed" if g.passed else "failed", "; ".join(g.failures)) for g in self.gates)
        changes = tuple(
            (c.title, "-" if c.gained is None else f"{c.gained:+.1f}", c.command) for c in self.what_ifs
        )
        tables = (
            Table(("output", "expected dB", "measured dB"), outputs),
            Table(("gate", "result", "where"), gates, left=3),
            Table(("change", "dB", "command"), changes),
        )
        return Presentation((), tuple(table for table in tables if table.rows))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder with report.html, report.md, junit.xml and report.json; or report.html alone where
        the name ends in .html.

        Raises:
            ConfigError: it cannot be written.
        """
        from .html.page import page
        from .writers.files import write_report

        if os.fspath(path).lower().endswith(".html"):
            write_atomically(path, page(self))
        else:
            write_report(self, path)
