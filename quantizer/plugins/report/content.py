"""What a report says: frozen records, which every writer reads and `qprof schema report` publishes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.findings import Finding
from ....profiles.base.json_values import NOT_IN_JSON
from ....profiles.base.output_files import write_atomically
from ....profiles.base.presentation import Presentation, Presented, Table, decibels
from ...evaluation.compare import SampleDifference
from ...evaluation.cost import Cost
from ...evaluation.latency import is_unclear
from ...plan.plan import Kind
from .excerpts import Excerpt

SLOWER = 0.98
"""Speedup below which a model counts as slower than float."""


@dataclass(frozen=True)
class HistogramBins:
    """Counts in bins of equal width."""

    start: float  # lower edge of the first bin
    width: float  # of a bin, a power of two but in an estimated histogram
    counts: tuple[int, ...]  # of the values


@dataclass(frozen=True)
class Parameters:
    """How a tensor is quantized."""

    type: str  # of the integers
    scale: float  # value of one step
    zero_point: int  # the integer that stands for 0
    low: float  # the smallest and the largest value that is represented
    high: float
    clipped: float  # share of the values outside by more than one step, 0 to 1
    sqnr: float | None  # expected, in dB, of quantizing this tensor alone


@dataclass(frozen=True)
class TensorRecord:
    """One activation."""

    name: str
    shape: str  # as in "?x3x224x224"
    made_by: str  # name of the node that makes it, "" for an input
    operator: str  # type of that node, "input" for an input
    read_by: tuple[str, ...]  # names of the nodes that read it
    minimum: float  # of the finite values
    maximum: float
    count: int  # of the finite values; `zeros` of them are 0
    zeros: int
    non_finite: int  # values that are NaN or infinite
    histogram: HistogramBins | None  # of the finite values; None without any
    parameters: Parameters | None  # in the plan; None for a tensor that stays float
    following: str = ""  # operators of the function of all its readers by whose error the range was chosen
    is_equalized: bool = False  # whether its channels were equalized: its histogram is estimated then


@dataclass(frozen=True)
class NodeRecord:
    """One node."""

    name: str
    operator: str
    kind: str  # what becomes of it, as in the plan
    reason: str  # why it stays float, or a remark
    code: str  # of the reason; "" for none
    inputs: tuple[str, ...]  # names of the activations that it reads and makes
    outputs: tuple[str, ...]
    float_us: float | None  # microseconds in the float model, as `RunTime.how` says; None for unknown ones
    planned_us: float | None  # the same as it is planned, without conversions around it
    multiply_adds: float  # of one sample
    noise: float | None  # its share of the noise at the output with the lowest SQNR, 0 to 1
    run_by: str = ""  # name of the If, Loop or Scan in whose body it is; "" in the main graph

    @property
    def is_integer(self) -> bool:
        """Whether it computes on integers."""
        return Kind(self.kind).counts_as_quantized


@dataclass(frozen=True)
class RunTime:
    """Microseconds of one run: of all of it, and outside of all layers."""

    how: Literal["predicted", "measured"]  # from a table of kernels, or by the profiler of onnxruntime
    float_us: float  # of everything that each model executes
    quantized_us: float
    conversions_us: float  # of quantizing and dequantizing tensors between the layers of the quantized model
    unknown_float_us: float = 0.0  # of what neither name nor place leads to a layer
    unknown_us: float = 0.0


@dataclass(frozen=True)
class NoisePart:
    """The noise that one node adds at an output."""

    node: str
    share: float  # of all noise there, 0 to 1
    sqnr: float  # in dB, of the output with the noise of this node alone
    is_run: bool = False  # whether that was run


@dataclass(frozen=True)
class NoiseBudget:
    """Where the noise of an output comes from."""

    output: str  # its name, or that of a tensor that it is put together from
    sqnr: float  # in dB with all noise
    limit: float | None  # the least in dB that the plan allows, or, as run, from which on the output is good
    parts: tuple[NoisePart, ...]  # of the nodes, the largest first
    run_on: str  # the samples that it was run on, in words


@dataclass(frozen=True)
class FloatGroupRecord:
    """Nodes that stay float for one reason, priced."""

    code: str  # of the reason
    reason: str
    nodes: tuple[str, ...]
    float_us: float | None  # microseconds that they take; None where no times are known
    multiply_adds: float  # share of those of the model, 0 to 1


@dataclass(frozen=True)
class Verdict:
    """The grade of the model, with its reasons."""

    level: str  # "failed" where a gate failed, "not proven" where one is not proven
    sentence: str  # why
    findings: tuple[Finding, ...] = ()  # what lies at the bottom of it, the gravest first
    grade: str = "none"  # "good", "fair" or "poor", whatever the gates say; "none" where there is no telling
    remark: str = ""  # on the grade, as in "so far (weights only)"

    @property
    def besides(self) -> str:
        """What to say beside the level: the grade, if it is another, and the remark."""
        return self.remark if self.level == self.grade else f"grade {self.grade} {self.remark}".strip()

    @property
    def words(self) -> str:
        """The level, the grade, if it is another, and the remark on it."""
        if self.level == self.grade:
            return f"{self.grade} {self.remark}".strip()
        return f"{self.level} ({self.besides})"


@dataclass(frozen=True)
class Speed:
    """The time of one run."""

    float_ms: float  # milliseconds
    quantized_ms: float
    speedup: float  # their ratio; above 1 the quantized model is faster
    low: float | None  # its quartiles; None where it was not measured
    high: float | None
    how: str  # "measured", or "predicted" from a table of kernels of this processor
    where: str  # the processor of the table, or threads and samples

    @property
    def is_slower(self) -> bool:
        """Whether the quantized model is slower than the float one."""
        return self.speedup < SLOWER and not self.is_unclear

    @property
    def is_unclear(self) -> bool:
        """Whether the machine was too busy to tell."""
        return self.low is not None and self.high is not None and is_unclear(self.low, self.high)


@dataclass(frozen=True)
class OutputQuality:
    """How near an output is to that of the float model."""

    name: str  # of the output
    estimated: float | None = None  # SQNR in dB that was estimated when the plan was made
    low: float | None = None  # the band that is expected of it, dB
    high: float | None = None
    measured: float | None = None  # SQNR in dB on samples; None without samples
    agreement: float | None = None  # share of equal answers, 0 to 1; None where the output is no answer
    kind: str = ""  # what it is, in words; "" where that is not known
    needed: float | None = None  # dB from which on the output is good

    @property
    def sqnr(self) -> float:
        """The SQNR in dB: measured, else estimated; inf for an output without any."""
        known = self.measured if self.measured is not None else self.estimated
        return math.inf if known is None else known


def file_name(path: str) -> str:
    """Return the last part of a path, of this system or another, or of a URL."""
    return path.rstrip("/").replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True)
class GateResult:
    """One limit, held against the measured figure."""

    name: str  # of the option, as in "--min-sqnr"
    limit: float | None  # its value; None for one that is no number
    unit: str  # of the limit
    # "passed", "failed", or "not proven" where what was measured shows neither
    result: Literal["passed", "failed", "not proven"]
    failures: tuple[str, ...] = ()  # where it is not kept, and by how much, as sentences

    @property
    def passed(self) -> bool:
        """Whether the limit is kept."""
        return self.result == "passed"

    @property
    def title(self) -> str:
        """Its name with the limit."""
        return f"{self.name} {self.limit_text}".strip()

    @property
    def limit_text(self) -> str:
        """The limit with its unit; "" for none."""
        return "" if self.limit is None else f"{self.limit:g} {self.unit}".strip()


@dataclass(frozen=True)
class WhatIf:
    """A change of the settings that was tried, with the figures of its model."""

    options: str  # of `qprof quantize` that make it, to copy
    brings: str  # the figures of its model, in words
    output: str  # whose SQNR is given
    sqnr: float | None  # in dB, after the change; None where that is not known
    gained: float | None  # dB that it gains; None as above
    speedup: float | None  # over the float model; None where it was not timed


@dataclass(frozen=True)
class TaskScore:
    """The task of the model, in figures of both models."""

    name: str  # of the metric
    float_score: float  # in `unit`
    quantized_score: float
    unit: str  # "%", "dB", or "" for that of the output
    change: str  # of the score in words, as "-0.50 points, -1.47 to +0.48", the interval at 95 %
    rows: int  # units that were scored

    @property
    def words(self) -> str:
        """Both scores with the change, as in "99.50 -> 99.00 % of 400 (-0.50 points, ...)"."""
        scores = " -> ".join(score_figure(score) for score in (self.float_score, self.quantized_score))
        return f"{scores}{' ' * bool(self.unit)}{self.unit} of {self.rows} ({self.change})"


def score_figure(score: float) -> str:
    """Return a score with two digits after the point, a small one with four."""
    return f"{score:.2f}" if abs(score) >= 1.0 else f"{score:.4g}"


@dataclass(frozen=True, repr=False)
class Report(Presented):
    """Everything that a report shows; unknown parts are empty or None.

    Attributes:
        title: names of the models.
        tool: name and version of the writer.
        verdict: the verdict.
        task: the score of both models; None without labels.
        float_bytes, quantized_bytes: size of the model's files, external data included.
        speed: speed of both models.
        int8_share: fraction of the arithmetic in types of few bits, 0 to 1.
        computes_in: these types, in words.
        kinds: number of nodes of each kind.
        outputs: quality of the outputs, compared with the float model.
        is_of_kept_samples: whether the quality was measured only on the profile's check samples.
        facts: other results, such as accuracy.
        gates: the limits.
        what_ifs: changes that were tried and make a better model.
        noise: the sources of noise of each output, the output with the lowest SQNR first.
        layers: the tensors of both models compared, in graph order, as `compare-layers` has them.
        tensors: activations in graph order.
        nodes: nodes in graph order.
        run_time: measured times of both models, else predicted ones; None if none are known.
        float_groups: groups of float nodes with their reason, the slowest first.
        samples: the samples on which the models differ most.
        excerpts: the parts of each that a page shows. Not in JSON.
        drift: a newer profile compared with an older one, the result of `diff`; None without one.
        findings: other notes and warnings, the gravest first.
        provenance: origin of the data.
    """

    title: str
    tool: str
    verdict: Verdict
    task: TaskScore | None = None
    float_bytes: int | None = None
    quantized_bytes: int | None = None
    speed: Speed | None = None
    int8_share: float | None = None
    computes_in: str = "int8"
    kinds: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[OutputQuality, ...] = ()
    is_of_kept_samples: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    noise: tuple[NoiseBudget, ...] = ()
    layers: tuple[Any, ...] = ()
    tensors: tuple[TensorRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    run_time: RunTime | None = None
    float_groups: tuple[FloatGroupRecord, ...] = ()
    samples: tuple[SampleDifference, ...] = ()
    excerpts: tuple[Excerpt, ...] = field(default=(), metadata=NOT_IN_JSON)
    drift: Any = None
    findings: tuple[Finding, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def cost(self) -> Cost | None:
        """The sizes of both models, None if they are not known."""
        if self.float_bytes is None or self.quantized_bytes is None:
            return None
        return Cost(self.float_bytes, self.quantized_bytes)

    @property
    def equalized(self) -> frozenset[str]:
        """Tensors whose channels were equalized: their SQNR says little."""
        return frozenset(tensor.name for tensor in self.tensors if tensor.is_equalized)

    @property
    def passed(self) -> bool:
        """Whether all gates passed."""
        return all(gate.passed for gate in self.gates)

    @property
    def shown_samples(self) -> int:
        """The number of samples whose input is shown: private ones are not to be published."""
        return len(self.excerpts)

    @property
    def leaves_nothing_to_do(self) -> bool:
        """Whether the model was measured on samples that are new to it, is good, and nothing speaks against
        it: no finding, no change that makes it better, no answer that changed."""
        if self.is_of_kept_samples or any(sample.changed for sample in self.samples):
            return False
        is_measured = any(output.measured is not None for output in self.outputs)
        verdict = self.verdict
        is_good = verdict.level == "good" and not verdict.findings and not verdict.besides
        return is_good and is_measured and not self.what_ifs

    def headline(self) -> str:
        """Return the models and the verdict."""
        return f"{self.title}: {self.verdict.words}, {self.verdict.sentence}"

    def presentation(self) -> Presentation:
        """Return the outputs, the gates and the changes to try."""
        outputs = tuple((o.name, decibels(o.estimated), decibels(o.measured)) for o in self.outputs)
        gates = tuple((g.name, g.result, "; ".join(g.failures)) for g in self.gates)
        changes = tuple((change.options, change.brings) for change in self.what_ifs)
        tables = (
            Table(("output", "expected dB", "measured dB"), outputs),
            Table(("gate", "result", "where"), gates, left=3),
            Table(("try", "brings"), changes, left=2),
        )
        return Presentation((), tuple(table for table in tables if table.rows))

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder with report.html, report.md, junit.xml and report.json."""
        from .html import page
        from .writers import write_report

        if os.fspath(path).lower().endswith(".html"):
            write_atomically(path, page(self))
        else:
            write_report(self, path)
