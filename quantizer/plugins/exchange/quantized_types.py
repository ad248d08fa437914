"""The quantized tensors of a plan, and MLIR's text of their types, shared by all notations for compilers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....profiles.base.strict_yaml import float_text
from ...numerics.affine import TYPES, QuantParams
from ...operators.graph import index
from ...plan.plan import QuantPlan

if TYPE_CHECKING:
    import onnx_ir as ir

Shape = tuple[int | None, ...] | None


@dataclass(frozen=True)
class QuantizedTensor:
    """One quantized tensor of a plan."""

    name: str  # in the model
    shape: Shape  # its dimensions, None for a free one; None for an unknown rank
    params: QuantParams  # scales and zero points


def quantized_tensors(plan: QuantPlan, model: ir.Model) -> Iterator[QuantizedTensor]:
    """Yield the quantized tensors of a plan, in its order, of unknown rank where the model lacks them."""
    graph = index(model)
    for name, params in plan.tensors.items():
        yield QuantizedTensor(name, graph.shape(name) if name in graph.values else None, params)


def uniform_type(params: QuantParams, shape: Shape) -> str:
    """Return the text of `!quant.uniform<...>`, scales as decimals of float32; blocks need the shape."""
    qtype, width = params.qtype, TYPES[params.qtype.storage].bits
    storage = f"{'i' if qtype.signed else 'u'}{width}"
    if width != qtype.bits:
        storage += f"<{qtype.low}:{qtype.high}>"
    numbers = zip(params.scale.tolist(), params.zero_point.tolist(), strict=True)
    pairs = [f"{float_text(scale)}:{point}" if point else float_text(scale) for scale, point in numbers]
    if params.axis is None:
        return f"!quant.uniform<{storage}:f32, {pairs[0]}>"
    if params.block_size is None:
        return f"!quant.uniform<{storage}:f32:{params.axis}, {{{', '.join(pairs)}}}>"
    dims = [size for size in shape or () if size is not None]
    sizes = [params.block_size if axis == params.axis else 1 for axis in range(len(dims))]
    blocks = ", ".join(f"{axis}:{size}" for axis, size in enumerate(sizes))
    grid = np.asarray(pairs, object).reshape(params.grid_shape(tuple(dims)))
    return f"!quant.uniform<{storage}:f32:{{{blocks}}}, {_nested(grid)}>"


def _nested(grid: np.ndarray) -> str:
    if grid.ndim == 0:
        return str(grid.item())
    return "{" + ", ".join(_nested(np.asarray(part, object)) for part in grid) + "}"


def declaration(tensor: QuantizedTensor, params: QuantParams) -> str:
    """Return MLIR's declaration of the function that quantizes a tensor with these parameters."""
    source, result = _types(tensor, params)
    return f"  func.func private {symbol(tensor.name)}({source}) -> {result}"


def function_text(tensor: QuantizedTensor, params: QuantParams, operation: str) -> str:
    """Return an MLIR function with `operation` on `%value`, whose `{result}` is the quantized type."""
    source, result = _types(tensor, params)
    return (
        f"  func.func {symbol(tensor.name)}(%value: {source}) -> {result} {{\n"
        f"    %quantized = {operation.format(result=result)} : ({source}) -> {result}\n"
        f"    return %quantized : {result}\n"
        "  }"
    )


def _types(tensor: QuantizedTensor, params: QuantParams) -> tuple[str, str]:
    """Return the types of a tensor in float and quantized."""
    shape = "*x" if tensor.shape is None else "".join(f"{'?' if n is None else n}x" for n in tensor.shape)
    return f"tensor<{shape}f32>", f"tensor<{shape}{uniform_type(params, tensor.shape)}>"


def module_text(plan: QuantPlan, title: str, functions: list[str]) -> str:
    """Return an MLIR module with a head that names its source."""
    head = [f"// {title}.", f"// Plan of {_comment(plan.model.file or 'a model')}, by {_comment(plan.tool)}."]
    if plan.adjustments:
        head.append(
            "// The plan changes weights first (equalization, biases, rounding): the types are of the result."
        )
    return "\n".join([*head, "module {", *functions, "}"]) + "\n"


def symbol(name: str) -> str:
    """Return a name as MLIR's quoted symbol."""
    characters = (chr(byte) for byte in name.encode("utf-8", "backslashreplace"))
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\{ord(c):02X}" for c in characters)
    return f'@"{"".join(plain)}"'


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
