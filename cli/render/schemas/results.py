"""Records of what commands print with --json. Importing them imports the whole quantizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....profiles.records.data_checks import Hint, InputCheck, Outlier
from ....quantizer.api.explanation import NodeExplanation, TensorExplanation
from ....quantizer.api.quantization import FloatGroup, QuantizeResult
from ....quantizer.evaluation.latency import Latency
from ....quantizer.noise.estimate_check import EstimateCheck, ExpectedSqnr
from ....quantizer.search.float_fallback import SpeedCheck
from ....quantizer.search.verdict import Judged
from ....quantizer.targets.config import QuantConfig
from ....quantizer.targets.operator_page import OperatorReference
from ....quantizer.targets.target import Target


@dataclass(frozen=True)
class FloatRegion:
    """Nodes that fell back to float together.

    Attributes:
        nodes: their names.
        quantized_ms, float_ms: latency of these nodes, conversions at their border included.
    """

    nodes: tuple[str, ...]
    quantized_ms: float
    float_ms: float


@dataclass(frozen=True)
class Speed:
    """What --check-speed measured.

    Attributes:
        min_speedup: the gate, null for none.
        passed: whether it is met.
        before, after: latency of both models, before and after nodes fell back to float.
        fallback: what fell back to float, in this order.
        trials: plans that were made and timed besides the first.
        reasons: where the time goes, when float is faster still.
        unfused: nodes that the plan quantizes and onnxruntime computes in float nevertheless.
        undone: what else onnxruntime executed otherwise than first planned.
        changes: what was done that made the model faster, in this order.
        left_float: how the whole model was left in float at last; "" where it was not.
        made_up: whether the samples were made up from the profile.
    """

    min_speedup: float | None
    passed: bool
    before: Latency
    after: Latency
    fallback: tuple[FloatRegion, ...]
    trials: int
    reasons: tuple[str, ...]
    unfused: tuple[str, ...]
    undone: tuple[str, ...]
    changes: tuple[str, ...]
    left_float: str
    made_up: bool

    @classmethod
    def of(cls, check: SpeedCheck) -> Speed:
        """Return what is printed of a check."""
        regions = (FloatRegion(r.nodes, r.integer_ms, r.float_ms) for r in check.fallback)
        return cls(
            check.demand.min_speedup,
            check.passed,
            check.before,
            check.after,
            tuple(regions),
            check.trials,
            check.reasons,
            check.unfused,
            check.undone,
            check.changes,
            check.left_float,
            check.demand.data is None,
        )


@dataclass(frozen=True)
class Quantization:
    """What `qprof quantize` prints.

    Attributes:
        model: file that was written.
        float_bytes, quantized_bytes: sizes of both models, external data included.
        nodes: kind to number of nodes.
        floats: nodes that stay float, a group for each code of a reason.
        notes: remarks.
        speed: what was measured with --check-speed.
        expected: SQNR of the outputs as estimated, with the band in which it is expected.
        estimates: SQNR of the outputs as estimated and as measured, where the command has samples.
        judged: the verdict and what it rests on, where the command profiled samples; null elsewhere.
    """

    model: str
    float_bytes: int
    quantized_bytes: int
    nodes: Mapping[str, int]
    floats: tuple[FloatGroup, ...]
    notes: tuple[str, ...]
    speed: Speed | None
    expected: tuple[ExpectedSqnr, ...]
    estimates: tuple[EstimateCheck, ...]
    judged: Judged | None

    @classmethod
    def of(cls, result: QuantizeResult) -> Quantization:
        """Return what is printed of a result."""
        return cls(
            str(result.model_path),
            result.float_bytes,
            result.quantized_bytes,
            result.summary.counts,
            result.summary.floats,
            result.notes,
            None if result.speed is None else Speed.of(result.speed),
            result.expected,
            result.estimates,
            result.judged,
        )


@dataclass(frozen=True)
class Operators:
    """What `qprof rules` prints: a target, and what becomes of each operator there."""

    target: str
    operators: tuple[OperatorReference, ...]


@dataclass(frozen=True)
class TargetRecord:
    """A target with the settings that it starts from.

    Attributes:
        config: the settings.
        target: the runtime.
        this_machine: whether target auto is this one here.
    """

    config: QuantConfig
    target: Target
    this_machine: bool


@dataclass(frozen=True)
class Targets:
    """What `qprof targets` prints."""

    targets: tuple[TargetRecord, ...]


@dataclass(frozen=True)
class Profiling:
    """What `qprof dump-profile` prints.

    Attributes:
        profile: file that was written.
        tensors, samples: how many of them it has; a batch counts as its rows.
        runs: how many times the model ran: once for each sample or batch.
        inputs: what each input of the graph was given.
        hints: what should be looked at in the data.
        outliers: samples that hold the extremes of unusually many tensors.
        notes: remarks.
    """

    profile: str
    tensors: int
    samples: int
    runs: int
    inputs: tuple[InputCheck, ...]
    hints: tuple[Hint, ...]
    outliers: tuple[Outlier, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ShownProfile:
    """What `qprof show PROFILE` prints: the profile in the words of its file, with counts as lists.

    Attributes:
        file_format: of the profile file.
        tool, origin, model, data: who made it, of which model and data.
        tensors: name to what was recorded.
        inputs: name to what each input of the graph was given.
        noise: of how many samples noise was to be measured, and what was, by their digests; absent for none.
    """

    file_format: str
    tool: str
    origin: str
    model: Mapping[str, Any] | None
    data: Mapping[str, Any] | None
    tensors: Mapping[str, Mapping[str, Any]]
    inputs: Mapping[str, Mapping[str, Any]] | None = None
    noise: Mapping[str, Any] | None = None


Explanation = TensorExplanation | NodeExplanation
"""What `qprof explain` prints: of a tensor, or of a node."""
