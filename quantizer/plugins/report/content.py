"""What a report says: frozen records, which every writer reads and `qprof schema report` publishes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ....profiles.base.arguments import checks_arguments
from ....profiles.base.findings import Finding
from ....profiles.base.json_values import NOT_IN_JSON
from ....profiles.base.output_files import write_atomically
from ....profiles.base.presentation import Presentation, Presented, Table, decibels
from ...evaluation.cost import Cost
from ...evaluation.latency import is_unclear
from ...plan.plan import Kind
from .excerpts import Excerpt

SLOWER = 0.98
"""Speedup below which a model counts as slower than float."""


@dataclass(frozen=True)
class CalibratorChoice:
    """The range that one calibrator chooses for a tensor.

    Attributes:
        name: of the calibrator, or "plan" for the range that the plan has.
        low, high: the smallest and the largest value that is represented.
        clipped: share of the values outside by more than one step, 0 to 1.
        sqnr: expected, in dB, of quantizing this tensor alone; None where it has no signal.
    """

    name: str
    low: float
    high: float
    clipped: float
    sqnr: float | None


@dataclass(frozen=True)
class HistogramBins:
    """Counts in bins of equal width.

    Attributes:
        start: lower edge of the first bin.
        width: of a bin, a power of two but in an estimated histogram.
        counts: of the values.
    """

    start: float
    width: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Parameters:
    """How a tensor is quantized.

    Attributes:
        type: of the integers.
        scale: value of one step.
        zero_point: the integer that stands for 0.
        low, high: the smallest and the largest value that is represented.
        clipped: share of the values outside by more than one step, 0 to 1.
        sqnr: expected, in dB, of quantizing this tensor alone.
    """

    type: str
    scale: float
    zero_point: int
    low: float
    high: float
    clipped: float
    sqnr: float | None


@dataclass(frozen=True)
class TensorRecord:
    """One activation.

    Attributes:
        name: of the tensor.
        shape: as in "?x3x224x224".
        made_by: name of the node that makes it, "" for an input.
        operator: type of that node, "input" for an input.
        read_by: names of the nodes that read it.
        minimum, maximum: of the finite values.
        count: of the finite values; `zeros` of them are 0.
        zeros: see `count`.
        non_finite: values that are NaN or infinite.
        histogram: of the finite values; None without any.
        parameters: in the plan; None for a tensor that stays float.
        calibrators: what the calibrators choose, with the type and schema of the plan.
        following: operators of the function of all its readers by whose error the range was chosen, "" for
            none: what is clipped makes no difference after it.
        is_equalized: whether its channels were equalized: its histogram is estimated then.
        group: index of its shared-scale group; None for none.
        minimum_samples, maximum_samples: samples with the most extreme values, if the profile names them.
    """

    name: str
    shape: str
    made_by: str
    operator: str
    read_by: tuple[str, ...]
    minimum: float
    maximum: float
    count: int
    zeros: int
    non_finite: int
    histogram: HistogramBins | None
    parameters: Parameters | None
    calibrators: tuple[CalibratorChoice, ...]
    following: str = ""
    is_equalized: bool = False
    group: int | None = None
    minimum_samples: tuple[str, ...] = ()
    maximum_samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeRecord:
    """One node.

    Attributes:
        name, operator: of the node.
        kind: what becomes of it, as in the plan.
        reason: why it stays float, or a remark.
        code: of the reason; "" for none.
        inputs, outputs: names of the activations that it reads and makes.
        float_us: predicted microseconds in the float model; None where no times are known.
        planned_us: the same as it is planned, without conversions around it.
        quantized_us: of a float node, what it would take in int8.
        conversions_us: of a float node, what conversions around it would cost more in int8.
        multiply_adds: of one sample.
        noise: its share of the noise at the output with the lowest SQNR, 0 to 1; None where it adds none.
        module: that it was exported from, as in "blocks.0.conv"; "" where nothing tells.
        run_by: name of the If, Loop or Scan in whose body it is; "" in the main graph.
        measured_float_us: microseconds that it took in the float model; None where that was not measured, and
            where the runtime executed it as part of another node or not at all.
        measured_us: the same in the quantized model, without conversions around it.
    """

    name: str
    operator: str
    kind: str
    reason: str
    code: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    float_us: float | None
    planned_us: float | None
    quantized_us: float | None
    conversions_us: float | None
    multiply_adds: float
    noise: float | None
    module: str = ""
    run_by: str = ""
    measured_float_us: float | None = None
    measured_us: float | None = None

    @property
    def is_integer(self) -> bool:
        """Whether it computes on integers."""
        return Kind(self.kind).counts_as_quantized

    @property
    def gain_us(self) -> float | None:
        """The microseconds that int8 would save at this float node, conversions included: 0 or more.

        None if unknown.
        """
        if self.planned_us is None or self.quantized_us is None or self.conversions_us is None:
            return None
        return max(0.0, self.planned_us - self.quantized_us - self.conversions_us)


@dataclass(frozen=True)
class RunTime:
    """Microseconds of one run: of all of it, and outside of all layers.

    Attributes:
        how: "predicted" from a table of kernels, or "measured" by the runtime's profiler.
        float_us, quantized_us: of everything that each model executes.
        conversions_us: of quantizing and dequantizing tensors between the layers of the quantized model.
        unknown_float_us, unknown_us: of what neither name nor place leads to a layer.
        relative_size: elements that the inputs had, over those of a sample of the profile, which times are
            predicted for; 1 where that is not known.
        plain_float_us, plain_us: of runs without the profiler, which takes time itself; None where that was
            not measured.
    """

    how: Literal["predicted", "measured"]
    float_us: float
    quantized_us: float
    conversions_us: float
    unknown_float_us: float = 0.0
    unknown_us: float = 0.0
    relative_size: float = 1.0
    plain_float_us: float | None = None
    plain_us: float | None = None

    @property
    def is_slower(self) -> bool:
        """Whether the quantized model is slower than the float one without the profiler."""
        if self.plain_float_us is None or self.plain_us is None:
            return False
        return self.plain_float_us < SLOWER * self.plain_us


@dataclass(frozen=True)
class NoisePart:
    """The noise that one node adds at an output.

    Attributes:
        node: its name.
        share: of all noise there, 0 to 1.
        sqnr: in dB, of the output with the noise of this node alone.
        is_run: whether that was run; else it is estimated, or shares the noise of neighbours that was run.
    """

    node: str
    share: float
    sqnr: float
    is_run: bool = False


@dataclass(frozen=True)
class NoiseBudget:
    """Where the noise of an output comes from.

    Attributes:
        output: its name, or that of a tensor that it is put together from.
        sqnr: in dB with all noise.
        limit: the least in dB that the plan allows, or, as run, from which on the output is good; None for
            none.
        parts: of the nodes, the largest first.
        run_on: the samples that it was run on, in words; "" of an estimate.
    """

    output: str
    sqnr: float
    limit: float | None
    parts: tuple[NoisePart, ...]
    run_on: str = ""


@dataclass(frozen=True)
class TensorNoiseRecord:
    """Estimated and measured noise of one tensor, with all that was added upstream.

    Attributes:
        tensor: its name.
        operator: what makes it.
        estimated: SQNR in dB; None where it is not known.
        measured: SQNR in dB, after the function `after` where there is one; None where it could not be.
        drop: dB that the node which makes it adds, measured.
        is_quantized: whether the tensor holds integers.
        after: operators of the function that all its readers compute, "" for none.
        is_equalized: whether its channels were equalized: its SQNR says little then, as weights
            downstream take the scales back, and no estimate is given.
    """

    tensor: str
    operator: str
    estimated: float | None
    measured: float | None
    drop: float | None
    is_quantized: bool
    after: str = ""
    is_equalized: bool = False

    @property
    def sqnr(self) -> float | None:
        """The SQNR in dB: measured, else estimated."""
        return self.estimated if self.measured is None else self.measured


@dataclass(frozen=True)
class FloatGroupRecord:
    """Nodes that stay float for one reason, priced.

    Attributes:
        code: of the reason.
        reason: in words.
        nodes: names.
        float_us: predicted microseconds that they take; None where no times are known.
        gain_us: microseconds that int8 would save in those that it would make faster, conversions included.
        multiply_adds: share of those of the model, 0 to 1.
    """

    code: str
    reason: str
    nodes: tuple[str, ...]
    float_us: float | None
    gain_us: float | None
    multiply_adds: float


@dataclass(frozen=True)
class SharedMember:
    """One tensor of a shared-scale group.

    Attributes:
        tensor: its name.
        low, high: its own calibrated range.
        sets_range: whether its range makes the common one.
        lost_db: dB that sharing costs it.
    """

    tensor: str
    low: float
    high: float
    sets_range: bool
    lost_db: float


@dataclass(frozen=True)
class SharedGroup:
    """Activations with one scale, and who forced it.

    Attributes:
        low, high: the common range.
        tied_by: names of the nodes that tied them.
        members: in graph order.
    """

    low: float
    high: float
    tied_by: tuple[str, ...]
    members: tuple[SharedMember, ...]


@dataclass(frozen=True)
class TensorDriftRecord:
    """How one tensor drifted.

    Attributes:
        tensor: its name.
        clipping: share of the new values that saturate, 0 to 1; None where it has none.
        range_growth: factor by which the range has grown.
        distance: Jensen-Shannon distance, 0 to 1; None where it could not be measured.
        failed: whether it exceeds a limit.
    """

    tensor: str
    clipping: float | None
    range_growth: float
    distance: float | None
    failed: bool = False


@dataclass(frozen=True)
class DriftRecord:
    """One profile of newer data against the one that the model was quantized with.

    Attributes:
        profile: name of the newer profile.
        samples: that it was made from.
        passed: whether it exceeds no limit.
        gated: whether there is any limit.
        tensors: those that drifted most, the worst first.
        findings: what else to know, the gravest first.
    """

    profile: str
    samples: int
    passed: bool
    gated: bool
    tensors: tuple[TensorDriftRecord, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A name and a text.

    Attributes:
        name: of the fact.
        text: for people.
    """

    name: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """The grade of the model, with its reasons.

    Attributes:
        level: "failed" where a gate failed, "not proven" where one is not proven; else the grade, or
            "passed" where gates are and the grade is "none".
        sentence: why.
        findings: what lies at the bottom of it, the gravest first.
        grade: "good", "fair" or "poor", whatever the gates say; "none" where there is no telling.
    """

    level: str
    sentence: str
    findings: tuple[Finding, ...] = ()
    grade: str = "none"

    @property
    def grade_besides(self) -> str:
        """The grade in words where the level is another; "" elsewhere."""
        return "" if self.grade == self.level else f"grade {self.grade}"

    @property
    def words(self) -> str:
        """The level, and the grade where it is another."""
        return f"{self.level} ({self.grade_besides})" if self.grade_besides else self.level


@dataclass(frozen=True)
class Size:
    """Bytes of the model files, external data included; the second may follow from quantized constants."""

    float_bytes: int
    quantized_bytes: int | None
    is_estimated: bool = False

    @property
    def change(self) -> str:
        """The change of size in words."""
        return Cost(self.float_bytes, self.quantized_bytes or 0).change


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
    """How near an output is to that of the float model.

    Attributes:
        name: of the output.
        estimated: SQNR in dB that was estimated when the plan was made; None where it is not known.
        low, high: the band that is expected of it, dB.
        measured: SQNR in dB on samples; None without samples.
        cosine: similarity of both outputs, -1 to 1; None without samples.
        agreement: share of equal answers, 0 to 1; None where the output is no answer.
        kind: what it is, in words; "" where that is not known.
        needed: dB from which on the output is good, as found from the figure of this model on these samples
            (answers change with dB by no fixed rate), so that others have another; None where that is not
            known.
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
    """One limit, held against the measured figure.

    Attributes:
        name: of the option, as in "--min-sqnr".
        limit: its value; None for one that is no number.
        unit: of the limit.
        result: "passed", "failed", or "not proven" where what was measured shows neither.
        failures: where it is not kept, and by how much, as sentences.
        subject: what is held against it, where there are several: a profile; else "".
    """

    name: str
    limit: float | None
    unit: str
    result: Literal["passed", "failed", "not proven"]
    failures: tuple[str, ...] = ()
    subject: str = ""

    @property
    def passed(self) -> bool:
        """Whether the limit is kept."""
        return self.result == "passed"

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
    """A change of the settings that was tried, with the figures of its model.

    Attributes:
        title: what changes, in a few words.
        command: to copy.
        output: whose SQNR is given.
        sqnr: in dB, after the change; None where that is not known.
        gained: dB that it gains; None as above.
        speedup: over the float model; None where it was not timed.
        nodes: those that stay float by it.
        options: of `qprof quantize` that make it.
        measured_on: samples that its plan was run on, in words; "" for held-out ones.
    """

    title: str
    command: str
    output: str
    sqnr: float | None
    gained: float | None
    speedup: float | None
    nodes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    measured_on: str = ""


@dataclass(frozen=True)
class SampleRecord:
    """A sample with extreme values, or one on which the models differ most.

    Attributes:
        sample: its name.
        extremes: number of tensors whose smallest or largest value it made.
        clipped: number of quantized tensors in which its extreme values saturate.
        sqnr: of the output that differs most on it, in dB; None where it is none of the most different ones.
        changed: share of its answers, or objects, that the quantized model changed, 0 to 1; None as above.
        excerpt: what a page shows of one of those; None for another. Not in JSON.
    """

    sample: str
    extremes: int
    clipped: int
    sqnr: float | None = None
    changed: float | None = None
    excerpt: Excerpt | None = field(default=None, metadata=NOT_IN_JSON)


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


@dataclass(frozen=True)
class TaskScore:
    """The task of the model, in figures of both models.

    Attributes:
        name: of the metric.
        float_score, quantized_score: in `unit`.
        unit: "%", "dB", or "" for that of the output.
        change: of the score in words, as "-0.50 points, -1.47 to +0.48", the interval at 95 %.
        rows: units that were scored.
    """

    name: str
    float_score: float
    quantized_score: float
    unit: str
    change: str
    rows: int

    @property
    def words(self) -> str:
        """Both scores with the change, as in "accuracy 99.50 -> 99.00 % of 400 (-0.50 points, ...)"."""
        scores = " -> ".join(score_figure(score) for score in (self.float_score, self.quantized_score))
        return f"{self.name} {scores}{' ' * bool(self.unit)}{self.unit} of {self.rows} ({self.change})"


def score_figure(score: float) -> str:
    """Return a score with two digits after the point, a small one with four."""
    return f"{score:.2f}" if abs(score) >= 1.0 else f"{score:.4g}"


@dataclass(frozen=True, repr=False)
class Report(Presented):
    """Everything that a report shows; unknown parts are empty or None.

    Attributes:
        title: names of the models.
        tool: name and version of the writer.
        verdict: what to think of it.
        task: the score of both models; None where nothing tells right from wrong.
        size, speed: of both models.
        int8_share: share of the arithmetic that is done in types of few bits, 0 to 1.
        computes_in: these types, in words.
        kinds: number of nodes of each kind.
        outputs: how near they are to those of the float model.
        is_of_kept_samples: whether that was measured on the samples that the profile keeps alone.
        facts: other results, such as accuracy.
        gates: limits that were given.
        what_ifs: changes that were tried and make a better model.
        noise: where the noise of the outputs comes from, the output with the lowest SQNR first.
        tensor_noise: estimated and measured noise, in graph order.
        tensors: activations in graph order.
        nodes: in graph order.
        run_times: of both models, as predicted and as measured, where they are known.
        float_groups: why nodes stay float, what takes most time first.
        shared: groups of activations with one scale.
        samples: those that stand out.
        drift: newer profiles against the one of the plan, in the order given.
        trials: of a tuning.
        findings: what else to know, the gravest first.
        provenance: where all of it comes from.
    """

    title: str
    tool: str
    verdict: Verdict
    task: TaskScore | None = None
    size: Size | None = None
    speed: Speed | None = None
    int8_share: float | None = None
    computes_in: str = "int8"
    kinds: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[OutputQuality, ...] = ()
    is_of_kept_samples: bool = False
    facts: tuple[Fact, ...] = ()
    gates: tuple[GateResult, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    noise: tuple[NoiseBudget, ...] = ()
    tensor_noise: tuple[TensorNoiseRecord, ...] = ()
    tensors: tuple[TensorRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    run_times: tuple[RunTime, ...] = ()
    float_groups: tuple[FloatGroupRecord, ...] = ()
    shared: tuple[SharedGroup, ...] = ()
    samples: tuple[SampleRecord, ...] = ()
    drift: tuple[DriftRecord, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    provenance: tuple[Fact, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all gates passed."""
        return all(gate.passed for gate in self.gates)

    @property
    def shown_samples(self) -> int:
        """The number of samples whose input is shown: private ones are not to be published."""
        return sum(sample.excerpt is not None for sample in self.samples)

    @property
    def leaves_nothing_to_do(self) -> bool:
        """Whether the model was measured on samples that are new to it, is good, and nothing speaks against
        it: no finding, no change that makes it better, no answer that changed."""
        if self.is_of_kept_samples or any(sample.changed for sample in self.samples):
            return False
        is_measured = any(output.measured is not None for output in self.outputs)
        is_good = self.verdict.level == "good" and not self.verdict.findings
        return is_good and is_measured and not self.what_ifs

    def headline(self) -> str:
        """Return the models and the verdict."""
        return f"{self.title}: {self.verdict.words}, {self.verdict.sentence}"

    def presentation(self) -> Presentation:
        """Return the outputs, the gates and the changes to try."""
        outputs = tuple((o.name, decibels(o.estimated), decibels(o.measured)) for o in self.outputs)
        gates = tuple((g.name, g.result, "; ".join(g.failures)) for g in self.gates)
        changes = tuple(
            (c.title, "-" if c.gained is None else f"{c.gained:+.1f}", c.command) for c in self.what_ifs
        )
        tables = (
            Table(("output", "expected dB", "measured dB"), outputs),
            Table(("gate", "result", "where"), gates, left=3),
            Table(("change", "dB", "command"), changes),
        )
        return Presentation((), tuple(table for table in tables if table.rows))

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder with report.html, report.md, junit.xml and report.json; or report.html alone where
        the name ends in .html.

        Raises:
            ConfigError: it cannot be written.
        """
        from .html import page
        from .writers import write_report

        if os.fspath(path).lower().endswith(".html"):
            write_atomically(path, page(self))
        else:
            write_report(self, path)
