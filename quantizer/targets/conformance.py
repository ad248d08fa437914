"""Predicates over a written model and the documents of its runtime, for runtimes that are not installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.base.findings import Code, Finding
from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS
from ..model.graph import name_of
from ..operators.table import CONVERSIONS, DEQUANTIZE, MICROSOFT, RULES, Constraint, rule_of
from .target import Target

Breach = tuple[str, str]
"""A refusal or a wrong result of a runtime: the node, "" for the model as a whole, and the sentence."""


class ConformityError(ConfigError):
    """A written model does not suit its target."""

    def __init__(self, message: str, breaches: tuple[Breach, ...], target: str) -> None:
        super().__init__(message)
        self.breaches = breaches
        self.target = target


Check = Callable[[ir.Model, Target], Iterator[Breach]]
"""Yields each breach."""
Remark = Callable[[ir.Model, Target], Iterator[Finding]]
"""Yields findings that are not violations."""

BYTES = (ir.DataType.UINT8, ir.DataType.INT8)
TOLERANCE = 1e-6
"""Relative tolerance of a scale, which is in float32."""
WRITTEN = ("QLinear", "QGemm", "MatMulInteger", "DynamicQuantize")
"""How the names of onnxruntime's own quantized operators begin."""


def check_conformity(model: ir.Model, target: Target, where: str) -> tuple[Finding, ...]:
    """Return remarks for the user on a quantized model, as it would be written, for a target."""
    breaches = tuple(breach for check in CHECKS for breach in check(model, target))
    if breaches:
        more = f"; and {len(breaches) - 3} more" if len(breaches) > 3 else ""
        first = "; ".join(sentence for _, sentence in breaches[:3])
        message = (
            f"{where}: does not suit target {target.name}: {first}{more}; change the "
            "settings, keep these nodes float, or choose another target"
        )
        raise ConformityError(message, breaches, target.name)
    return tuple(finding for check in REMARKS for finding in check(model, target))


def _at(node: ir.Node, sentence: str) -> Breach:
    return name_of(node), f"node '{name_of(node)}': {sentence}"


def _foreign_domains(model: ir.Model, target: Target) -> Iterator[Finding]:
    foreign = Counter(
        node.op_type
        for node in model.graph.all_nodes()
        if node.domain == MICROSOFT
        and MICROSOFT not in target.domains
        and not node.op_type.startswith(WRITTEN)  # by quantization
    )
    for op_type, count in foreign.most_common():
        name = f"{MICROSOFT}.{op_type}"
        sentence = f"{target.name} has no {name} ({count} nodes of the float model): they run elsewhere"
        yield Finding(Code.RUNS_ELSEWHERE, sentence, name, {"nodes": count})


def _opset_is_read(model: ir.Model, target: Target) -> Iterator[Breach]:
    opset = model.opset_imports.get("", 0)
    if target.opsets is not None and not target.opsets[0] <= opset <= target.opsets[1]:
        yield (
            "",
            f"opset {opset}: {target.name} reads {target.opsets[0]} to {target.opsets[1]}; "
            "export the float model in one of these",
        )


def _joined_values_are_quantized_once(model: ir.Model, target: Target) -> Iterator[Breach]:
    """What a Concat makes is not quantized a second time from a grid whose zero point is not 0."""
    if not target.joined_values_once:
        return
    for node, _ in _conversions(model):
        back = _behind_relu(node) if node.op_type == "QuantizeLinear" else None
        first = None if back is None or back.op_type != DEQUANTIZE else _producer(back)
        if first is None or first.op_type != "QuantizeLinear":
            continue
        zero_point = first.inputs[2] if len(first.inputs) > 2 else None
        constant = None if zero_point is None else zero_point.const_value
        is_shifted = constant is not None and np.any(constant.numpy())
        join = _behind_relu(first)
        if is_shifted and join is not None and join.op_type == "Concat":
            yield _at(
                node,
                f"quantizes joined '{join.outputs[0].name}' a second time, from a zero point that is not "
                f"0, which crashes {target.name}",
            )


def _producer(node: ir.Node) -> ir.Node | None:
    value = node.inputs[0]
    return None if value is None else value.producer()


def _behind_relu(node: ir.Node) -> ir.Node | None:
    """Return the node that makes the input of a conversion, Relu passed over."""
    producer = _producer(node)
    while producer is not None and producer.op_type == "Relu":
        producer = _producer(producer)
    return producer


def _full_ranges_are_covered(model: ir.Model, target: Target) -> Iterator[Breach]:
    """Kernels that are right for parameters of the full range only get such parameters (see `full_range`)."""
    for node, quantized in _conversions(model):
        source, scale = node.inputs[0], node.inputs[1].const_value if node.inputs[1] is not None else None
        producer = source.producer() if node.op_type == "QuantizeLinear" and source is not None else None
        bounds = (
            _bounds(producer.op_type, target) if producer and producer.op_type in target.full_range else None
        )
        if bounds is None or scale is None or producer is None or quantized.dtype not in BYTES:
            continue
        if not _reads_integers(producer):
            continue
        if float(scale.numpy().min()) * 256.0 < (bounds[1] - bounds[0]) * (1.0 - TOLERANCE):
            yield _at(
                producer,
                f"{target.name} computes {producer.op_type} wrongly if the "
                f"parameters of its output do not cover {bounds[0]:g} to {bounds[1]:g}, as those of "
                f"'{quantized.name}'",
            )


def _reads_integers(node: ir.Node) -> bool:
    """Whether the input is dequantized, perhaps before operators past which onnxruntime moves conversions."""
    value = node.inputs[0]
    while value is not None and (maker := value.producer()) is not None:
        if maker.op_type == DEQUANTIZE:
            return True
        rule = rule_of(maker)
        if rule is None or rule.constraint is not Constraint.SAME:
            return False
        value = maker.inputs[0]
    return False


def _bounds(op_type: str, target: Target) -> tuple[float, float]:
    """Return the smallest and the largest output of an operator of `Target.full_range`."""
    rule = RULES.get(("", op_type))
    if rule is None or rule.bounds is None or rule.constraint is not Constraint.FIXED:
        known = sorted(key[1] for key, rule in RULES.items() if rule.constraint is Constraint.FIXED)
        raise ConfigError(
            f"target {target.name}: full_range: no bounds of {op_type} are known; "
            f"known are those of {', '.join(known)}.{nearest(op_type, known)}"
        )
    return rule.bounds


def _shapes_are_fixed(model: ir.Model, target: Target) -> Iterator[Finding]:
    if not target.static_shapes:
        return
    free = [
        str(value.name)
        for value in model.graph.inputs
        if value.shape is None or not all(isinstance(dim, int) for dim in value.shape)
    ]
    if free:
        sentence = f"{target.name} wants fixed shapes: input '{free[0]}' has free dimensions"
        yield Finding(Code.FREE_SHAPES, sentence, free[0], remedy="fix them before use")


def _operators_are_known(model: ir.Model, target: Target) -> Iterator[Finding]:
    if not target.known_operators:
        return
    known = {*target.known_operators, *target.operators, *CONVERSIONS}
    missing = Counter(node.op_type for node in model.graph.all_nodes() if node.op_type not in known)
    for op_type, count in missing.most_common():
        sentence = f"{target.name} has no {op_type} ({count} nodes): they run elsewhere, or not at all"
        yield Finding(Code.RUNS_ELSEWHERE, sentence, op_type, {"nodes": count})


def _conversions(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield every conversion of the model, with its quantized tensor."""
    for node in model.graph.all_nodes():
        if node.domain in STANDARD_DOMAINS and node.op_type in CONVERSIONS:
            quantized = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
            if quantized is not None:
                yield node, quantized


CHECKS: tuple[Check, ...] = (_full_ranges_are_covered, _opset_is_read, _joined_values_are_quantized_once)
"""What a runtime refuses, in the order of the message."""

REMARKS: tuple[Remark, ...] = (_shapes_are_fixed, _foreign_domains, _operators_are_known)
"""What a runtime runs elsewhere or after a change."""
