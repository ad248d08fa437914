"""What was decided: the frozen plan between analysis and rewriting, and its YAML form.

The plan is the only thing that the planner and the lowerings share.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import onnx_ir as ir
from msgspec import Meta

from ...profiles.base.arguments import checks_arguments
from ...profiles.base.findings import Finding
from ...profiles.base.json_values import to_jsonable
from ...profiles.base.presentation import Presentation, Presented, Table, is_report
from ...profiles.base.progress import counted
from ...profiles.records.profile import Dim, ModelId
from ..model.graph import name_of, output_name
from ..numerics.affine import QuantParams
from ..operators.functions import nodes_between
from ..targets.config import QuantConfig
from .reasons import FloatReason, ReasonCode, because, summary


@dataclass(frozen=True)
class EqualizationScales:
    """The channels of one activation are divided by scales, and its readers' weights multiplied by them.

    In float the result of the model stays the same.

    Attributes:
        axis: axis of the channels in the activation, counted from the front.
        scales: one for each channel: a positive power of two, so that no float loses a bit.
        inserted: whether a Mul is inserted between the activation and those readers; if not, its producer
            computes the divided activation.
    """

    axis: int
    scales: tuple[float, ...]
    inserted: bool = False


Positive = Annotated[int, Meta(ge=1)]

if TYPE_CHECKING:
    Int8s: TypeAlias = bytes | memoryview
    Numbers: TypeAlias = tuple[float, ...]
else:  # as the plan's file has them
    Int8s, Numbers = bytes, Annotated[str | float, "numbers with spaces between them"]


@dataclass(frozen=True)
class RoundingOffsets:
    """How one weight is rounded: how far each quantized value is from the nearest.

    Attributes:
        offsets: one for each element, in row-major order, as int8; those of large weights in a mapped file.
        params: digest of the parameters that they were chosen for
            (`rounded_weights.params_digest`).
    """

    offsets: Int8s
    params: str


@dataclass(frozen=True)
class Adjustments:
    """Everything that is changed in a prepared model before it is planned and written.

    Attributes:
        equalization: by the name of the activation, in graph order.
        biases: node name -> correction of the bias of each output channel when the node is quantized,
            float32-exact.
        roundings: node name -> rounding of its quantized weight, if it is not to the nearest.
        padded_channels: activation -> number of its channels in the quantized model, if that is more than in
            the float model (see `channel_groups`).
        folded_widths: Conv -> how many columns of its result are computed together, as channels (see
            `rewrites.WIDTHS`).
        shapes: activation -> its shape in the profile's samples, None for sizes that differ, if the model
            does not determine its rank.
    """

    equalization: Mapping[str, EqualizationScales] = field(default_factory=dict)
    biases: Mapping[str, Numbers] = field(default_factory=dict)
    roundings: Mapping[str, RoundingOffsets] = field(default_factory=dict)
    padded_channels: Mapping[str, Positive] = field(default_factory=dict)
    folded_widths: Mapping[str, Positive] = field(default_factory=dict)
    shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(value for name, value in vars(self).items() if name != "shapes")


NO_ADJUSTMENTS = Adjustments()


class Implementation(StrEnum):
    """The ways of writing a node; the `Writers` of a form have the writer of each, by the kind of node."""

    USUAL = ""  # as its kind is usually written
    # LOOKUP_TABLE: the float operator between conversions, which the runtime compiles. DYNAMIC, WEIGHT_ONLY:
    # the runtime's own operator, in `forms.RUNTIME_FORMS` only; it may round activations block by block.
    RUNTIME = "runtime"
    RUNTIME_FLOAT = "runtime-float"  # WEIGHT_ONLY: the runtime's own operator with float activations
    SIGMOID = "sigmoid"  # LOOKUP_TABLE: through the runtime's table of the sigmoid
    PORTABLE = "portable"  # LOOKUP_TABLE: a table in standard ONNX
    SATURATING = "saturating"  # QUANTIZED: PRelu as a product and sums that saturate
    # LOOKUP_TABLE, and FLOAT of a quantized tensor: a pointwise chain as one float operator of the runtime.
    FUSED = "fused"
    # PASS_THROUGH, and QUANTIZED of Max and Min: on integers. WEIGHT_ONLY: rows of an embedding table.
    INTEGER = "integer"
    LEAKY_RELU = "leaky-relu"  # PASS_THROUGH: Relu as LeakyRelu with slope 0
    CHANNELS_LAST = "channels-last"  # PASS_THROUGH: MaxPool and Resize on integers with channels last
    # WEIGHT_ONLY, and QUANTIZED with activations of 16 bits: constants dequantized when a model is loaded.
    FOLDED = "folded"
    MAX = "max"  # FLOAT: Relu as Max with 0, Clip as Max and Min


ROUNDS_IN_KERNEL = Implementation.RUNTIME
"""Implementation of `Kind.WEIGHT_ONLY` whose kernel rounds the activations to 8 bits, block by block."""

RUNTIME_WEIGHTS = (ROUNDS_IN_KERNEL, Implementation.RUNTIME_FLOAT)
"""Implementations of `Kind.WEIGHT_ONLY` with an operator of the runtime's own that reads packed weights; it
takes a last block that is not full, too."""


class Kind(StrEnum):
    """How one node is computed in the quantized model."""

    QUANTIZED = "quantized"  # an output with parameters in `QuantPlan.tensors` is stored in them
    # A function of one variable, integer in, integer out. Several nodes can be one table: then the last has
    # an entry with the parameters of its output, and the outputs of the others have none.
    LOOKUP_TABLE = "lookup-table"
    PASS_THROUGH = "pass-through"  # moves, selects or clips quantized values, whose parameters stay
    DYNAMIC = "dynamic"  # integer with activation parameters computed at run time
    WEIGHT_ONLY = "weight-only"  # weight stored in few bits and dequantized; the operation is float
    FLOAT = "float"  # `NodePlan.reason` says why

    @cached_property
    def reads_quantized(self) -> bool:
        """Whether nodes of this kind read quantized activations; the others read float values."""
        return self in (Kind.QUANTIZED, Kind.LOOKUP_TABLE, Kind.PASS_THROUGH)

    @cached_property
    def counts_as_quantized(self) -> bool:
        """Whether nodes of this kind compute on quantized values, with parameters from a profile or at run
        time."""
        return self.reads_quantized or self is Kind.DYNAMIC

    @property
    def has_weights(self) -> bool:
        """Whether nodes of this kind may have quantized weights."""
        return self in (Kind.QUANTIZED, Kind.DYNAMIC, Kind.WEIGHT_ONLY)


BIAS_CORRECTED = (Kind.QUANTIZED, Kind.WEIGHT_ONLY)
"""Kinds whose biases make up for the rounding of their weights, which shifts the means of their results."""


@dataclass(frozen=True)
class NodePlan:
    """The decision for one node.

    Attributes:
        kind: its kind.
        because: why it stays float (of WEIGHT_ONLY, why nothing else became of it), or a
            remark in words, such as the figures of a weight.
        inputs: parameters by input index, if they differ from those of the tensor: the lowering then converts
            on that edge only. For a FLOAT node, the parameters of its cache of keys and values.
        implementation: which of the equivalent ways the lowering writes the node in: an `Implementation`,
            or a rewrite (`plan.rewrites`).
        float32: reason why its float values are float32 while others are float16 (setting `float_type`), or a
            text; "" without a reason.
    """

    kind: Kind
    because: FloatReason | str = ""
    inputs: Mapping[int, QuantParams] = field(default_factory=dict)
    implementation: str = Implementation.USUAL
    float32: FloatReason | str = ""

    @property
    def reason(self) -> str:
        """The reason why it stays float, or a remark, and why it is float32 while others are float16, in
        words."""
        return "; ".join(filter(None, (str(self.because), str(self.float32))))

    @property
    def stays_float(self) -> bool:
        """Whether the node computes in float for a reason, with its weight stored in int8 or not."""
        stored = self.kind is Kind.WEIGHT_ONLY and isinstance(self.because, FloatReason)
        return self.kind is Kind.FLOAT or stored

    @property
    def keeps_int8_cache(self) -> bool:
        """Whether this is a node in float that keeps keys and values in int8, or appends to them."""
        return self.kind is Kind.FLOAT and bool(self.inputs)

    @property
    def float_reason(self) -> FloatReason:
        """The reason why a node stays float; a reason without a code has UNKNOWN."""
        if isinstance(self.because, FloatReason):
            return self.because
        return because(ReasonCode.UNKNOWN, text=self.because)


@dataclass(frozen=True)
class SharedScale:
    """Activations that share their parameters, and how they came to: a record for people, see `explain`."""

    range: tuple[float, float]  # the common range
    range_set_by: tuple[str, ...]  # the members whose ranges make it
    tied_by: tuple[str, ...]  # names of the nodes that tied them
    members: Mapping[str, tuple[float, float]]  # name -> ends of its own calibrated range


@dataclass(frozen=True)
class OutputCheck:
    """How far an output was from float when the model was run on check samples.

    Attributes:
        output: its name.
        measure: the unit, such as "moved probability", "error of columns", or "noise" over signal.
        value: the figure, 0 for no difference.
        limit: above which the output is too far off.
        samples: how many were run.
        sqnr: SQNR of all elements, in dB; None if it is not finite.
        fault: a fault regardless of the figure; "" without one.
        figures: the figure, its limit, and the SQNR with its interval, in words.
    """

    output: str
    measure: str
    value: float
    limit: float
    samples: int
    sqnr: float | None = None
    fault: str = ""
    figures: str = ""

    @property
    def is_destroyed(self) -> bool:
        """Whether the output is beyond doubt worth nothing."""
        return bool(self.fault) or self.value >= DESTROYED * self.limit

    @property
    def text(self) -> str:
        """Return the measured figures, for people."""
        if self.fault:
            return f"output '{self.output}': {self.fault}"
        measured = f"measured on {counted(self.samples, None, 'calibration sample')}"
        return f"output '{self.output}': {self.figures or self.measure}, {measured}"


SAME_DB = 200.0
"""SQNR from which on there is no difference."""

DESTROYED = 10.0
"""Times its limit from which an output is destroyed."""

UNBLOCKED = 128
"""Elements of a block for kernels of packed weights if a weight has a scale for each channel: the scale is
repeated, and the kernel rounds the activations in blocks of this size. 1536 x 384 with 128 rows, 8 bits,
times float: 0.86 with 32, 0.74 with 64, 0.68 with 128, 0.59 with 256; the activations keep 45, 45, 44 and 43
dB."""


@dataclass(frozen=True)
class PredictedTime:
    """The predicted time of a run.

    Attributes:
        float_us: microseconds of the float model, as its file has it.
        planned_us: time of the planned model.
        table: runtime, threads and processor of the kernel times that it was predicted from.
        error: largest relative error of `planned_us / float_us` for nine of ten models; 0 if unknown.
    """

    float_us: float
    planned_us: float
    table: str
    error: float = 0.0

    @property
    def speedup(self) -> float:
        """How many times as fast as float the planned model is."""
        return self.float_us / self.planned_us

    @property
    def error_text(self) -> str:
        """Return the error of the prediction in words, or "" if it is not known."""
        return f"within {self.error:.0%} for nine of ten models".replace("%", " %") if self.error else ""

    @property
    def text(self) -> str:
        """Return it in words."""
        ratio = self.planned_us / self.float_us if self.float_us else 1.0
        error = f", {self.error_text}" if self.error else ""
        return f"{ratio:.2f} of float's time{error} ({self.table})"


@dataclass(frozen=True)
class PlanOrigin:
    """The sources of a plan, and its estimates: a record, which decides nothing.

    Attributes:
        profile: digest of the profile (`provenance.profile_digest`); "" without one.
        estimated_sqnr: graph output -> SQNR in dB that is estimated of it, for the outputs with noise.
        sqnr_bands: the same outputs -> lowest and highest expected SQNR in dB, if the estimate comes from
            measured noise.
        checks: measured errors of the outputs before the model was written; () if it was not run.
        time: predicted time of a run; None if the target has no kernel times, or they are disabled.
        decisions: in a file, digest of the plan that these estimates are of (`provenance.plan_digest`).
    """

    profile: str = ""
    estimated_sqnr: Mapping[str, float] = field(default_factory=dict)
    sqnr_bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    checks: tuple[OutputCheck, ...] = ()
    time: PredictedTime | None = None
    decisions: str = ""

    def __bool__(self) -> bool:
        return bool(self.profile or self.estimated_sqnr or self.checks or self.time)


NO_ORIGIN = PlanOrigin()


@dataclass(frozen=True, repr=False)
class QuantPlan(Presented):
    """Everything that was decided for one model.

    Attributes:
        model: the prepared model.
        config: the settings.
        tensors: parameters of every tensor that exists in quantized form: activations that a quantized
            node produces or consumes, weights, biases. An activation that is not here is float.
        nodes: decision for every node of the main graph, by node name, in graph order.
        findings: notes and warnings, such as a raised opset.
        tool: name and version of the writer.
        shared_scales: groups of activations with common parameters, two or more each.
        adjustments: changes to the float model before quantization; tensors and nodes are those of the
            result.
        origin: digests, estimates and measurements of the plan.
        borders: parameters of integer inputs and outputs of the model (settings io, and kv_cache for a cache
            in standard operators).
    """

    model: ModelId
    config: QuantConfig
    tensors: Mapping[str, QuantParams]
    nodes: Mapping[str, NodePlan]
    findings: tuple[Finding, ...] = ()
    tool: str = field(default="", compare=False)
    shared_scales: tuple[SharedScale, ...] = ()
    adjustments: Adjustments = NO_ADJUSTMENTS
    origin: PlanOrigin = field(default=NO_ORIGIN, compare=False)
    borders: Mapping[str, QuantParams] = field(default_factory=dict)

    def headline(self) -> str:
        """Return the model's file, how many nodes there are, and how many of each kind."""
        counts = Counter(entry.kind for entry in self.nodes.values())
        kinds = ", ".join(f"{counts[kind]} {kind.value}" for kind in Kind if counts[kind])
        return f"{self.model.file or 'model'}, {len(self.nodes)} nodes: {kinds}"

    def presentation(self) -> Presentation:
        """Return the main settings, the findings, and tables of nodes and tensors."""
        names = ("target", "mode", "form", "schema", "calibrator", "activation_type", "weight_type")
        facts = [(name, str(getattr(self.config, name))) for name in names]
        rows = tuple((name, entry.kind.value, entry.reason) for name, entry in self.nodes.items())
        params = tuple(
            (
                name,
                one.qtype.name + (f" ({len(one.scale)})" if len(one.scale) > 1 else ""),
                _span_text(one.scale.tolist()),
                _span_text(one.zero_point.tolist()),
                "" if one.axis is None else str(one.axis),
            )
            for name, one in self.tensors.items()
        )
        nodes = Table(("node", "kind", "reason"), rows, left=3)
        tensors = Table(("tensor", "type", "scale", "zero point", "axis"), params, left=4)
        return Presentation(tuple(facts), (nodes, tensors), self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return settings, nodes and parameters of tensors; the plan's file has all of it."""
        return {
            "model": self.model.file,
            "config": to_jsonable(self.config),
            "nodes": {n: {"kind": e.kind.value, "reason": e.reason} for n, e in self.nodes.items()},
            "tensors": {
                name: {
                    "type": params.qtype.name,
                    "axis": params.axis,
                    "scale": params.scale.tolist(),
                    "zero_point": params.zero_point.tolist(),
                }
                for name, params in self.tensors.items()
            },
            "findings": to_jsonable(self.findings),
        }

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan's file; a name that ends in .html, .md or .json asks for a report.

        Raises:
            ConfigError: the file cannot be written.
        """
        if is_report(path):
            super().save(path)
        else:
            from .store import save_plan

            save_plan(self, path)

    @property
    def int8_caches(self) -> int:
        """How many nodes keep keys and values in int8, or append to them."""
        return sum(entry.keeps_int8_cache for entry in self.nodes.values())

    def float_nodes(self) -> list[tuple[ReasonCode, str, tuple[str, ...]]]:
        """Return the nodes that stay float, by the code of their reason, most nodes first."""
        groups: dict[tuple[ReasonCode, str], list[str]] = {}
        for name, entry in self.nodes.items():
            if entry.stays_float:
                reason = entry.float_reason
                words = str(reason) if reason.code is ReasonCode.UNKNOWN else ""
                groups.setdefault((reason.code, words), []).append(name)
        by_reason = [
            (code, summary([self.nodes[name].float_reason for name in names]), tuple(names))
            for (code, _), names in groups.items()
        ]
        return sorted(by_reason, key=lambda group: -len(group[2]))

    def params_read(self, node: str, position: int, tensor: str) -> QuantParams | None:
        """Return the parameters that a node reads a tensor with: its own, or those of the tensor."""
        return self.nodes[node].inputs.get(position, self.tensors.get(tensor))

    def float_type_of(self, node: str, inputs: Sequence[str]) -> str:
        """Return the floating-point type that a node reads data and weight in, or ""."""
        read = (self.params_read(node, index, name) for index, name in enumerate(inputs))
        types = (params.qtype for params in read if params is not None)
        return next((qtype.name for qtype in types if qtype.is_float), "")

    def is_part(self, node: str, output: str) -> bool:
        """Whether a node, given with its output, is computed inside the table of the node that reads it."""
        entry = self.nodes.get(node)
        return entry is not None and entry.kind is Kind.LOOKUP_TABLE and output not in self.tensors

    def table_nodes(self, node: ir.Node) -> tuple[ir.Node, ...]:
        """Return the nodes of a look-up table in order, given the last; () for a part of another, or none."""

        def is_inside(value: ir.Value) -> bool:
            maker = value.producer()
            return maker is not None and self.is_part(name_of(maker), output_name(maker))

        entry = self.nodes.get(name_of(node))
        if entry is None or entry.kind is not Kind.LOOKUP_TABLE or is_inside(node.outputs[0]):
            return ()
        return nodes_between(node.outputs[0], is_inside, lambda value: value.is_initializer())[0]


def _span_text(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.6g}" if low == high else f"{low:.6g} .. {high:.6g}"
