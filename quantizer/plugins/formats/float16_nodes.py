"""The nodes that stay float32 while the rest of a model is float16 (setting `float_type`).

A tensor is float32 if float16 cannot represent it: its recorded range is near 65504, or it is never 0 and
falls below float16's normal numbers (a variance, an epsilon). Then its producer and its readers compute in
float32; so do nodes with constants of this kind, large or long sums, and operators without float16. Tensors
without a profile are assumed to fit, except results of operators that grow (`Operator.grows`).

Mask constants (fillers) are clamped if they vanish later, as before a Softmax. If fillers come from an input
of the model, the nodes from there to that Softmax are float32.

The rules use facts known before a model runs, and are pure. `float16_check` measures the loss on samples, and
passes it back (`Known.lost_in_float16`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.findings import Code, Finding
from ....profiles.base.tuned import tuned
from ....profiles.instrumentation.subgraphs import graph_attributes
from ....profiles.records.profile import Profile
from ...noise.mask_fillers import filler_rows
from ...operators.facts import Arithmetic, Sums
from ...operators.graph import Graph, Node
from ...operators.graph import index as indexed
from ...operators.table import CONVERSIONS
from ...plan.plan import Kind, QuantPlan
from ...plan.reasons import FloatReason, FloatReasons, ReasonCode, because, summary
from ...planning.plan_model import PlannedModel
from .float16_scales import LARGEST_16, with_fillers_16
from .float_types import FLOAT16_OPSET, float16_places

LIMIT = LARGEST_16 / 2.0
"""Largest recorded magnitude for float16: new data may reach twice of it."""

FEW_BITS_BELOW = 2.0**-17
"""Magnitudes below which float16 has fewer than 8 bits."""

MAX_SUMMED = tuned(
    1024,
    figure="half makes two or three more nodes of two models float32, double one fewer of three; none gains",
    chosen_on="22 trained models",
)
"""Elements whose sum keeps the bits of float16, whatever order a kernel adds them in."""

SMALL_CONSTANT = 1024
"""Elements of a constant that may be an epsilon; among those of a weight tiny ones are as good as 0."""

TERMS = (Arithmetic.SUM, Arithmetic.DIFFERENCE)


def with_float32_nodes(planned: PlannedModel) -> PlannedModel:
    """Return the plan with the nodes that compute in float32; predicted times, of float32, are left out."""
    facts, plan, graph = planned.source_facts, planned.plan, indexed(planned.model)
    profile = replace(facts.profile, tensors={**facts.measured.tensors, **facts.profile.tensors})
    reasons = {**_Ranges(plan, graph, profile).nodes(), **planned.known.lost_in_float16}
    nodes = {name: replace(entry, float32=reasons.get(name, "")) for name, entry in plan.nodes.items()}
    kept = (finding for finding in plan.findings if finding.code is not Code.STAYS_FLOAT32)
    findings, origin = (*kept, *_findings(reasons, graph)), replace(plan.origin, time=None)
    return replace(planned, plan=replace(plan, nodes=nodes, findings=findings, origin=origin))


def _findings(reasons: FloatReasons, graph: Graph) -> Iterator[Finding]:
    """Yield how many nodes are float32, for each kind of reason."""
    groups: dict[ReasonCode, list[FloatReason]] = {}
    for reason in reasons.values():
        groups.setdefault(reason.code, []).append(reason)
    for alike in groups.values():
        count, text = len(alike), summary(alike)
        sentence = f"{count} of {len(graph.nodes)} nodes stay {text}"
        yield Finding(Code.STAYS_FLOAT32, sentence, figures={"nodes": count, "reason": alike[0].code.value})


class _Ranges:
    """The tensors and nodes of one plan that do not fit float16, by ranges and constants."""

    def __init__(self, plan: QuantPlan, graph: Graph, profile: Profile) -> None:
        self.plan, self.graph, self.profile = plan, graph, profile
        self.opset = max(plan.model.opset, FLOAT16_OPSET)

    def nodes(self) -> dict[str, FloatReason]:
        """Return the nodes that compute in float32."""
        nodes: dict[str, FloatReason] = {}
        tensors: dict[str, FloatReason] = {}
        for node in self.graph.nodes:
            has_floats = any(map(self._is_float, (*node.inputs, *node.outputs)))
            if has_floats and node.op_type not in CONVERSIONS:
                for name, reason in (*self._ranges(node), *self._below(node, tensors)):
                    tensors.setdefault(name, reason)
                for reason in (*self._constants(node), *self._sums(node), *self._schema(node)):
                    nodes.setdefault(node.name, reason)
        for name, reason in self._foreign_fillers().items():
            tensors.setdefault(name, reason)
        for name, reason in self._moved(tensors).items():
            for touching in self._touching(name, reason):
                nodes.setdefault(touching, reason)
        return nodes

    def _range(self, name: str) -> tuple[float, float] | None:
        """Return the smallest and the largest recorded value of a tensor, or None."""
        if name not in self.profile:
            return None
        tensor = self.profile[name]
        return (tensor.minimum, tensor.maximum) if tensor.histogram.total else None

    def _largest(self, name: str) -> float:
        return max(map(abs, self._range(name) or (0.0, 0.0)))

    def _is_float(self, name: str) -> bool:
        return bool(name) and self.graph.dtype(name) is ir.DataType.FLOAT

    # Tensors

    def _ranges(self, node: Node) -> Iterator[tuple[str, FloatReason]]:
        """Yield the tensors that a node makes whose values float16 does not have."""
        for name in filter(self._is_float, node.outputs):
            largest = self._largest(name)
            if largest > LIMIT:
                yield name, because(ReasonCode.BEYOND_FLOAT16, tensor=name, largest=_words(largest))
            smallest = (self._range(name) or (0.0, 0.0))[0]
            if 0.0 < smallest < FEW_BITS_BELOW and self._is_divisor(name):
                yield name, because(ReasonCode.BELOW_FLOAT16, tensor=name, smallest=smallest)
            is_square = node.facts.arithmetic is Arithmetic.PRODUCT and len(set(node.inputs)) == 1
            if self._range(name) is None and (node.facts.grows or is_square):
                yield name, because(ReasonCode.RANGE_NOT_KNOWN, operator=node.op_type, tensor=name)

    def _is_divisor(self, name: str) -> bool:
        return any(i >= 0 and n.facts.breaks_at_zero(n.ir_node, i) for n, i in self.graph.consumers(name))

    def _below(self, node: Node, tensors: Mapping[str, FloatReason]) -> Iterator[tuple[str, FloatReason]]:
        """Yield the results of a node that only an epsilon separates from 0 before a division or a root."""
        smallest = math.inf
        for index in range(len(node.inputs)):
            if self._is_epsilon(node, index):
                smallest = min(smallest, float(np.abs(node.constant(index)).max()))  # type: ignore[arg-type]
            before = tensors.get(node.input(index))
            is_root = node.facts.is_root(node.ir_node, index)
            if is_root and before is not None and before.code is ReasonCode.BELOW_FLOAT16:
                smallest = min(smallest, math.sqrt(float(before.details["smallest"])))
        if smallest < FEW_BITS_BELOW and self._is_divisor(node.output):
            yield node.output, because(ReasonCode.BELOW_FLOAT16, tensor=node.output, smallest=smallest)

    def _is_epsilon(self, node: Node, index: int) -> bool:
        """Whether an input is a small constant that has few bits or none in float16."""
        value = self.graph.values.get(node.input(index))
        if value is None or value.const_value is None or value.const_value.size > SMALL_CONSTANT:
            return False
        constant = node.constant(index)
        if constant is None or constant.dtype != np.float32 or not constant.size:
            return False
        return 0.0 < float(np.abs(constant).max()) < FEW_BITS_BELOW

    def _foreign_fillers(self) -> dict[str, FloatReason]:
        """Return the tensors with fillers of an input: as infinities they make NaN after a Softmax."""
        found: dict[str, FloatReason] = {}
        for name in self.graph.inputs:
            if name in self.profile and self.profile[name].inf and self._is_float(name):
                largest = float(np.finfo(np.float32).max)
                found[name] = because(ReasonCode.BEYOND_FLOAT16, tensor=name, largest=_words(largest))
        for node in self.graph.nodes if found else ():
            source = next((found[name] for name in node.inputs if name in found), None)
            has_fillers = node.outputs and node.output in self.profile and self.profile[node.output].inf
            if source is not None and has_fillers and self._is_float(node.output):
                found[node.output] = source
        return found

    def _moved(self, tensors: Mapping[str, FloatReason]) -> dict[str, FloatReason]:
        """Return tensors with those of the same values before and after; for unknown ranges, also sums."""
        moved, waiting = dict(tensors), list(tensors)
        while waiting:
            name = waiting.pop()
            others: list[str] = []
            maker = self.graph.producer(name)
            if maker is not None and (maker.facts.moves_values or maker.facts.joins_inputs):
                others += maker.inputs[:1] if maker.facts.moves_values else maker.inputs
            for reader, index in self.graph.consumers(name):
                grows = moved[name].code is ReasonCode.RANGE_NOT_KNOWN and (
                    reader.facts.sums is not Sums.NONE or reader.facts.arithmetic in TERMS
                )
                if index >= 0 and reader.outputs and (grows or (reader.facts.moves_values and index == 0)):
                    others.append(reader.output)
            for other in others:
                if other not in moved and self._is_float(other) and not self.graph.is_constant(other):
                    moved[other] = moved[name]
                    waiting.append(other)
        return moved

    def _touching(self, name: str, reason: FloatReason) -> Iterator[str]:
        """Yield the nodes that make and read a tensor; readers of its integers only if it is large."""
        large = reason.code is ReasonCode.BEYOND_FLOAT16
        maker = self.graph.producer(name)
        nodes = [*([] if maker is None else [maker])]
        nodes += [node for node, index in self.graph.consumers(name) if index >= 0]
        for node, body in self.graph.bodies_around(name):
            if any(value.name == name for value in (*body.inputs, *body.outputs)):
                nodes.append(node)
        for node in nodes:
            entry = self.plan.nodes.get(node.name)
            if node.facts.reads_shape_only or entry is None:
                continue
            if large or not entry.kind.reads_quantized:
                yield node.name

    # Nodes

    def _constants(self, node: Node) -> Iterator[FloatReason]:
        """Yield why a node's constants are not float16."""
        for index, name in enumerate(node.inputs):
            if not (self._is_float(name) and self.graph.is_constant(name)):
                continue
            if self.plan.params_read(node.name, index, name) is not None:
                continue
            constant = node.constant(index)
            if constant is None or not constant.size:
                continue
            if self._is_epsilon(node, index):
                smallest = float(np.abs(constant).max())
                yield because(ReasonCode.CONSTANT_BELOW_FLOAT16, tensor=name, smallest=smallest)
            largest = _largest_of(constant)
            if largest > LARGEST_16 and not self._are_fillers(node, index):
                yield because(ReasonCode.CONSTANT_BEYOND_FLOAT16, tensor=name, largest=_words(largest))

    def _are_fillers(self, node: Node, index: int) -> bool:
        """Whether a constant's values beyond float16 are fillers that vanish as `FILLER_16` too."""
        constant, value = node.constant(index), self.graph.values[node.input(index)]
        assert constant is not None
        if _largest_of(with_fillers_16(constant)) > LARGEST_16:
            return False
        if filler_rows(value) is not None:
            return True
        if node.facts.arithmetic is not Arithmetic.PRODUCT or len(node.inputs) != 2:
            return False
        # (1 - mask) * lowest
        other = self._range(node.input(1 - index))
        is_mask = other is not None and 0.0 <= other[0] <= other[1] <= 1.0
        is_low = bool((constant <= 0.0).all())
        return is_mask and is_low and filler_rows(self.graph.values[node.output]) is not None

    def _sums(self, node: Node) -> Iterator[FloatReason]:
        """Yield the reasons why a node's sums do not fit float16."""
        sums = node.facts.sums
        if sums is Sums.NONE:
            return
        source, result = node.input(0), node.output
        elements = _elements(self.graph, self.profile, node)
        if elements > MAX_SUMMED:
            yield because(ReasonCode.LONG_SUM, operator=node.op_type, elements=elements)
        largest = self._largest(result)
        match sums:
            case Sums.MEAN:
                largest *= elements
            case Sums.NORM:
                largest *= largest
            case Sums.SHIFTED:
                largest = 0.0
        if largest > LIMIT and self._largest(source) <= LIMIT:
            yield because(ReasonCode.LARGE_SUM, operator=node.op_type, largest=_words(largest), tensor=result)

    def _schema(self, node: Node) -> Iterator[FloatReason]:
        """Yield that an operator has no float16."""
        entry = self.plan.nodes.get(node.name)
        if entry is None or entry.kind not in (Kind.FLOAT, Kind.WEIGHT_ONLY) or node.facts.reads_shape_only:
            return
        if graph_attributes(node.ir_node) or float16_places(node.ir_node, self.opset) is not None:
            return
        yield because(ReasonCode.NO_FLOAT16, operator=node.op_type, opset=self.opset)


def _largest_of(array: npt.NDArray[np.float32]) -> float:
    """Return the largest magnitude of finite numbers."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _words(largest: float) -> str:
    """Return a magnitude as people write it."""
    return f"{largest:,.0f}" if 10.0 <= largest < 1e9 else f"{largest:.3g}"


def _elements(graph: Graph, profile: Profile, node: Node) -> int:
    """Return the number of elements that a node sums to one of its result; 1 if it is not known."""
    if window := node.attributes.get_ints("kernel_shape", ()):
        return math.prod(window)
    if node.facts.sums is Sums.RUNNING:
        shape = graph.shape(node.input(0)) or ()
        return max((d for d in shape if isinstance(d, int)), default=1)
    if node.input(0) in profile and node.output in profile:
        before, after = profile[node.input(0)].count, profile[node.output].count
        return max(1, round(before / max(after, 1)))
    shapes = graph.shape(node.input(0)), graph.shape(node.output)
    sizes = [math.prod(d for d in shape if isinstance(d, int)) for shape in shapes if shape is not None]
    return max(1, sizes[0] // max(sizes[1], 1)) if len(sizes) == 2 else 1
