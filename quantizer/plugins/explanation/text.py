"""Explanations of a tensor or a node, as text for people: see `qprof show PLAN.yaml NAME`."""

from __future__ import annotations

from collections.abc import Iterator

from ....cli.console import plain_table
from ...numerics.affine import QuantParams
from .explanation import Explanation, NodeExplanation, Observed, TensorExplanation

LOSSES = ("dB lost to sharing", "SQNR dB", "unshared SQNR dB")
"""Columns of the table of tensors that share a scale; the last two where an SQNR is known."""


def explanation_text(explanation: Explanation) -> str:
    """Return the explanation for people."""
    if isinstance(explanation, NodeExplanation):
        return "\n".join(_node_lines(explanation))
    return "\n".join(_tensor_lines(explanation))


def _tensor_lines(explanation: TensorExplanation) -> Iterator[str]:
    """Yield the parameters, the nodes around the tensor, its values, and the members of its group."""
    noise = "" if explanation.sqnr_db is None else f", expected SQNR {_decibels(explanation.sqnr_db)} dB"
    yield f"tensor '{explanation.tensor}': {_params_text(explanation.params)}{noise}"
    for node in explanation.neighbours or ():
        verb = "made" if node.makes else "read"
        reason = f": {node.reason}" if node.reason else ""
        yield f"{verb} by '{node.node}' ({node.operator}), {node.kind}{reason}"

    # its values
    observed = explanation.observed
    if observed is not None and observed.is_constant:
        yield f"constant, values {_range_text((observed.minimum, observed.maximum))}"
    elif observed is not None:
        clipped = ""
        if observed.clipped is not None:
            clipped = f"; {100 * observed.clipped:.4g} % of the values are clipped"
        yield f"observed {_range_text((observed.minimum, observed.maximum))}{clipped}"
        if observed.effective_range is not None:
            used = _range_text(observed.effective_range)
            yield f"its readers use only values in {used}; others may be clipped"
        if explanation.params is not None:
            error = ""
            if observed.following_function:
                error = (
                    ": minimises the error after the activation function that follows "
                    f"({', '.join(observed.following_function)}); values where that is flat may be clipped"
                )
            yield f"calibrator {explanation.calibrator}{error}"

    # the tensors that share its scale
    members = explanation.members
    if explanation.range is not None:
        others = f"{len(members) - 1} other(s), tied by {', '.join(explanation.tied_by)}"
        yield f"it shares its scale with {others}; common range {_range_text(explanation.range)}"
        losses = LOSSES if any(member.sqnr_db is not None for member in members) else LOSSES[:1]
        rows = []
        for member in members:
            decibels = (member.lost_db, member.sqnr_db, member.own_sqnr_db)
            cells = [member.name, _range_text(member.own_range), "yes" if member.sets_range else ""]
            rows.append([*cells, *map(_decibels, decibels[: len(losses)])])
        yield plain_table(["tensor", "own range", "sets range", *losses], rows, right=losses)
    elif explanation.params is not None:
        yield "it shares its scale with no other tensor"
    if explanation.neighbours is None:
        yield "give --model and --profile for the nodes around it and its observed range"
    yield from (finding.line for finding in explanation.findings)


def _node_lines(explanation: NodeExplanation) -> Iterator[str]:
    """Yield the node with its kind and reason, then its inputs and outputs."""
    operator = "" if explanation.operator is None else f" ({explanation.operator})"
    kind = "stays float" if explanation.kind == "float" else explanation.kind
    written = f", implementation {explanation.implementation}" if explanation.implementation else ""
    reason = f": {explanation.reason}" if explanation.reason else ""
    yield f"node '{explanation.node}'{operator}: {kind}{written}{reason}"
    if explanation.inputs is None or explanation.outputs is None:
        yield "give --model for its operator, inputs and outputs"
        return
    for side, operands in (("input", explanation.inputs), ("output", explanation.outputs)):
        for operand in operands:
            words = _params_text(operand.params)
            words += " (converted for this node)" if operand.converted else ""
            words += _observed_text(operand.observed)
            yield f"  {side} {operand.index} '{operand.tensor}': {words}"


def _observed_text(observed: Observed | None) -> str:
    """Return the values of an operand as profiled, and how many of them saturate."""
    if observed is None:
        return ""
    clipped = ""
    if observed.clipped:
        clipped = f", {100 * observed.clipped:.4g} % clipped"
    return f"; observed {_range_text((observed.minimum, observed.maximum))}{clipped}"


def _params_text(params: QuantParams | None) -> str:
    if params is None:
        return "float"
    scale, zero_point = float(params.scale[0]), int(params.zero_point[0])
    covers, several = "", f" and {len(params.scale) - 1} more along axis {params.axis}"
    if len(params.scale) == 1:
        ends = (params.qtype.low - zero_point) * scale, (params.qtype.high - zero_point) * scale
        covers, several = f", covers {_range_text(ends)}", ""
    return f"{params.qtype.name}, scale {scale:.6g}{several}, zero_point {zero_point}{covers}"


def _range_text(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.6g} .. {ends[1]:.6g}"


def _decibels(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
