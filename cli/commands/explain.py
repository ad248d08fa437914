"""`qprof explain`: why does this tensor have these parameters, and why is this node float?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..console import document, echo, plain_table
from ..options import EXISTING, MODEL, FileCommand, custom_ops_option, json_option

if TYPE_CHECKING:
    from ...quantizer.api.explanation import (
        Member,
        Neighbour,
        NodeExplanation,
        Observed,
        Operand,
        TensorExplanation,
    )
    from ...quantizer.numerics.affine import QuantParams


@click.command("explain", cls=FileCommand)
@click.argument("plan", type=EXISTING, metavar="PLAN.yaml")
@click.argument("name", metavar="TENSOR|NODE")
@click.option("--model", type=MODEL, metavar="MODEL.onnx", help="Adds the nodes and tensors around it.")
@click.option(
    "--profile",
    type=EXISTING,
    metavar="PROFILE.yaml",
    help="Adds observed range, clipped share and expected noise; needs --model.",
)
@custom_ops_option
@json_option
def command(plan: Path, name: str, model: Path | None, profile: Path | None, as_json: bool) -> None:
    """Explain a tensor's parameters, or why a node is float.

    Of a tensor: its parameters; with --model and --profile the observed range, the share of clipped values,
    the calibrator and what follows; the tensors that share its scale, which of them set the common range,
    which nodes tied them, and the dB that each loses to sharing. Of a node: what the plan makes of it, why,
    and how its inputs and outputs are quantized. A plan is written by qprof quantize --save-plan.

    \b
    Examples:
      qprof explain plan.yaml /layer1/Concat_output_0
      qprof explain plan.yaml /layer1/conv/Conv --model model.onnx --profile profile.yaml --json
    """
    from ...quantizer.api.explanation import explain

    explanation = explain(plan, name, model, profile)
    echo(document("explanation", 1, explanation) if as_json else explanation_text(explanation))


RIGHT = ("dB lost to sharing", "SQNR dB", "unshared SQNR dB")


def explanation_text(explanation: TensorExplanation | NodeExplanation) -> str:
    """Return the explanation for people."""
    from ...quantizer.api.explanation import NodeExplanation

    return "\n".join(_node(explanation) if isinstance(explanation, NodeExplanation) else _tensor(explanation))


def _tensor(explanation: TensorExplanation) -> Iterator[str]:
    """Yield the parameters, the nodes around the tensor, its values, and the members of its group."""
    noise = "" if explanation.sqnr_db is None else f", expected SQNR {_db(explanation.sqnr_db)} dB"
    yield f"tensor '{explanation.tensor}': {_params_text(explanation.params)}{noise}"
    yield from (_neighbour_text(neighbour) for neighbour in explanation.neighbours or ())
    if explanation.observed is not None:
        yield from _values(explanation, explanation.observed)
    if explanation.range is not None:
        yield from _group(explanation, explanation.range)
    elif explanation.params is not None:
        yield "it shares its scale with no other tensor"
    if explanation.neighbours is None:
        yield "give --model and --profile for the nodes around it and its observed range"
    yield from explanation.remarks


def _values(explanation: TensorExplanation, observed: Observed) -> Iterator[str]:
    values = _range_text((observed.minimum, observed.maximum))
    if observed.is_constant:
        yield f"constant, values {values}"
        return
    clipped = (
        "" if observed.clipped is None else f"; {100 * observed.clipped:.4g} % of the values are clipped"
    )
    yield f"observed {values}{clipped}"
    if observed.effective_range is not None:
        yield f"its readers use only values in {_range_text(observed.effective_range)}; others may be clipped"
    if explanation.params is None:
        return
    if observed.following_function:
        operators = ", ".join(observed.following_function)
        yield (
            f"calibrator {explanation.calibrator}: minimises the error after the activation function that "
            f"follows ({operators}); values where that is flat may be clipped"
        )
    else:
        yield f"calibrator {explanation.calibrator}"


def _group(explanation: TensorExplanation, common: tuple[float, float]) -> Iterator[str]:
    others, nodes = len(explanation.members) - 1, ", ".join(explanation.tied_by)
    yield f"it shares its scale with {others} other(s), tied by {nodes}; common range {_range_text(common)}"
    measured = any(member.sqnr_db is not None for member in explanation.members)
    headers = ["tensor", "own range", "sets range", RIGHT[0], *(RIGHT[1:] if measured else ())]
    yield plain_table(headers, [_cells(member, measured) for member in explanation.members], right=RIGHT)


def _node(explanation: NodeExplanation) -> Iterator[str]:
    """Yield what the node is and why, then its inputs and outputs."""
    operator = "" if explanation.operator is None else f" ({explanation.operator})"
    kind = "stays float" if explanation.kind == "float" else explanation.kind
    written = f", implementation {explanation.implementation}" if explanation.implementation else ""
    yield f"node '{explanation.node}'{operator}: {kind}{written}{_reason(explanation.reason)}"
    if explanation.inputs is None or explanation.outputs is None:
        yield "give --model for its operator, inputs and outputs"
        return
    yield from (_operand_text("input", operand) for operand in explanation.inputs)
    yield from (_operand_text("output", operand) for operand in explanation.outputs)


def _operand_text(side: str, operand: Operand) -> str:
    converted = " (converted for this node)" if operand.converted else ""
    return f"  {side} {operand.index} '{operand.tensor}': {_params_text(operand.params)}{converted}"


def _params_text(params: QuantParams | None) -> str:
    if params is None:
        return "float"
    scale, zero_point = float(params.scale[0]), int(params.zero_point[0])
    covers, several = "", f" and {len(params.scale) - 1} more along axis {params.axis}"
    if len(params.scale) == 1:
        ends = (params.qtype.low - zero_point) * scale, (params.qtype.high - zero_point) * scale
        covers, several = f", covers {_range_text(ends)}", ""
    return f"{params.qtype.name}, scale {scale:.6g}{several}, zero_point {zero_point}{covers}"


def _neighbour_text(neighbour: Neighbour) -> str:
    verb = "made" if neighbour.makes else "read"
    return f"{verb} by '{neighbour.node}' ({neighbour.operator}), {neighbour.kind}{_reason(neighbour.reason)}"


def _reason(reason: str) -> str:
    return f": {reason}" if reason else ""


def _cells(member: Member, measured: bool) -> list[str]:
    cells = [
        member.name,
        _range_text(member.own_range),
        "yes" if member.sets_range else "",
        _db(member.lost_db),
    ]
    return [*cells, _db(member.sqnr_db), _db(member.own_sqnr_db)] if measured else cells


def _range_text(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.6g} .. {ends[1]:.6g}"


def _db(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
