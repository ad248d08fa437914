"""The result of an evaluation: what was measured of two models, and the limits that were not met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...profiles.base.presentation import Presentation, Presented, Table, decibels, percent, size_text
from ..differences.outputs import OutputResult
from ..differences.samples import SampleDifference
from ..metrics.score import Score, score_text
from ..noise.estimate_check import EstimateCheck
from ..plan.provenance import Provenance
from ..runtime.latency import Latency
from .accuracy import Accuracy
from .gates import Gate, GateFailure


@dataclass(frozen=True)
class Subject:
    """Digests of what was compared on what: evaluations of the same can be held against each other.

    Attributes:
        float_model: of the float model's graph and weights.
        data: of the samples, in whatever order (`data_id`).
        metric: of the metric, its options and its truth; "" without one.
    """

    float_model: str
    data: str
    metric: str


@dataclass(frozen=True, repr=False)
class Evaluation(Presented):
    """A float and a quantized model, compared.

    Attributes:
        float_model, quantized_model: file names.
        samples: how many samples were run; one may hold several rows.
        outputs: in the order of the float model.
        accuracy: None without labels.
        float_bytes, quantized_bytes: size of the model files, external data included.
        latency: None when it was not measured.
        gate: the limits that were given.
        failures: the limits that were not met; empty is success.
        doubts: signs that the models are not a float one and its quantized form: nothing quantized, a larger
            file, arguments swapped, made from a float model of other weights (`doubts`), and, where a speedup
            is asked for, quantized for another runtime. Any of them fails a gate with a limit.
        remarks: what else to know of the figures, such as an estimate that was too good, or a quantized model
            that was made from another graph.
        provenance: where the quantized model says that it comes from; None for one of another tool.
        estimates: SQNR as it was estimated when the model was quantized, and as measured here, by output.
        metric: the metric that was asked for, such as "map50"; "" without one.
        metric_title: the same for people.
        score: of both models by that metric; None without one.
        worst_samples: those on which the outputs differ most, the worst first; of one sample none.
        runtime: what ran both models, such as "onnxruntime".
        provider: its execution provider, or device.
        subject: digests of what was compared on what; None in a record of an older version.
        baseline: file of the earlier evaluation that this one was held against; "" without one.
    """

    float_model: str
    quantized_model: str
    samples: int
    outputs: tuple[OutputResult, ...]
    accuracy: Accuracy | None
    float_bytes: int
    quantized_bytes: int
    latency: Latency | None
    gate: Gate
    failures: tuple[GateFailure, ...]
    doubts: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    provenance: Provenance | None = None
    estimates: tuple[EstimateCheck, ...] = ()
    metric: str = ""
    metric_title: str = ""
    score: Score | None = None
    worst_samples: tuple[SampleDifference, ...] = ()
    runtime: str = "onnxruntime"
    provider: str = "CPUExecutionProvider"
    subject: Subject | None = None
    baseline: str = ""

    @property
    def gated(self) -> bool:
        """Whether there is a limit, or a baseline to be held against."""
        return self.gate.has_limit or bool(self.baseline)

    @property
    def passed(self) -> bool:
        """Whether every limit of the gate was met, and where there is one, that nothing is doubtful."""
        return not self.failures and not (self.doubts and self.gated)

    @property
    def worst_sqnr(self) -> float | None:
        """The lowest SQNR of an output in dB; None where none is float."""
        known = (output.difference.sqnr for output in self.outputs if output.difference is not None)
        return min(known, default=None)

    def headline(self) -> str:
        """Return both models, and the worst SQNR of an output."""
        worst = "" if self.worst_sqnr is None else f", {decibels(self.worst_sqnr)} dB"
        return f"{self.quantized_model} against {self.float_model}{worst}"

    def presentation(self) -> Presentation:
        """Return samples, size, latency, scores and failures of the gate; and a table of the outputs."""
        facts = [
            ("samples", str(self.samples)),
            ("size", f"{size_text(self.float_bytes)} float, {size_text(self.quantized_bytes)} quantized"),
        ]
        if self.latency is not None:
            facts.append(("speedup", f"{self.latency.speedup:.2f}"))
        if self.accuracy is not None:
            a = self.accuracy
            facts.append(
                ("accuracy", f"{a.float_percent:.2f} % float, {a.quantized_percent:.2f} % quantized")
            )
        if self.score is not None:
            facts.append((self.metric, score_text(self.score)))
        for failure in self.failures:
            words = (f"{failure.demand} {failure.limit:g}", failure.where, failure.reason)
            facts.append(("failed", " ".join(filter(None, words))))
        facts += [("failed" if self.gated else "remark", doubt) for doubt in self.doubts]
        facts += [("remark", remark) for remark in self.remarks]
        rows = tuple(
            (
                output.name,
                "-" if output.difference is None else decibels(output.difference.sqnr),
                "-" if output.difference is None else f"{output.difference.cosine:.6f}",
                percent(None if output.agreement is None else output.agreement.ratio),
            )
            for output in self.outputs
        )
        return Presentation(tuple(facts), (Table(("output", "SQNR dB", "cosine", "agreement"), rows),))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and `passed`."""
        return {**super().to_dict(), "passed": self.passed}
