"""Hold the types that are written for compilers against the interpreters of these compilers.

Needs `pip install torch-mlir ai-edge-litert flatbuffers` beside qprof.

    python tests/benchmarks/run.py compilers MODEL.onnx:PLAN.yaml --work DIR

A subject is a model and a plan of it. For each tensor of the plan: StableHLO's verifier parses its function;
StableHLO's interpreter and a TFLite model of one QUANTIZE operator quantize values over the whole range,
beyond it, and half way between all integers; the integers are compared with qprof's. The interpreter has no
per-axis arithmetic and no unsigned storage (its pass makes ui8 to i8), so axes are run channel by channel and
unsigned types as their signed equivalents.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from frame import Row, Rows, Stage, table
from qprof_onnx import load_plan
from qprof_onnx.quantizer.exchange import stablehlo, tflite
from qprof_onnx.quantizer.exchange.quantized_types import quantized_tensors, uniform_type
from qprof_onnx.quantizer.numerics.affine import QuantParams, quantize, signed_equivalent
from qprof_onnx.quantizer.prepare.prepare import open_prepared

Floats = npt.NDArray[np.float32]
CHANNELS = 4
"""How many channels of a per-axis type are run: the first ones."""


def probes(params: QuantParams) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return values around and half way between integers, and which are ties to float32's spacing."""
    low, high = max(params.qtype.low, -70_000), min(params.qtype.high, 70_000)
    steps = np.unique(np.linspace(low - 3, high + 3, 2000).round()) - params.tensor_zero_point
    offsets = np.array([-0.5, -0.3, 0.0, 0.3, 0.5])
    scale = np.float32(params.tensor_scale)
    values = ((steps[:, None] + offsets).astype(np.float32) * scale).ravel().astype(np.float32)
    quotients = values / scale
    room = 2 * np.spacing(np.abs(quotients) + abs(params.tensor_zero_point) + 1)
    ties = np.abs(quotients - np.floor(quotients) - 0.5) <= room
    return values, ties


def per_tensor(params: QuantParams) -> list[QuantParams]:
    """Return the parameters of single channels, as of tensors of their own."""
    pairs = list(zip(params.scale.tolist(), params.zero_point.tolist(), strict=True))[:CHANNELS]
    return [replace(params, scale=(s,), zero_point=(z,), axis=None, block_size=None) for s, z in pairs]


# StableHLO -------------------------------------------------------------------------------------------------


def context() -> Any:
    import torch_mlir._mlir_libs._stablehlo as hlo
    from torch_mlir import ir

    made = ir.Context()
    with made:
        hlo.register_dialect(made)
        hlo.register_interpreter_dialect(made)
    return made


def parsed(text: str, unregistered: bool) -> int:
    """Return how many functions MLIR finds in a module, having verified it."""
    from torch_mlir import ir

    made = context()
    made.allow_unregistered_dialects = unregistered
    with made:
        module = ir.Module.parse(text)
        assert module.operation.verify()
        return len(list(module.body.operations))


def by_stablehlo(params: QuantParams, values: Floats) -> npt.NDArray[np.int64]:
    import torch_mlir._mlir_libs._stablehlo as hlo
    from torch_mlir import ir
    from torch_mlir.passmanager import PassManager

    if params.qtype.bits == 4:  # no array can be made of 4-bit elements: 8 bits, limited to their range
        params = replace(params, qtype=replace(params.qtype, stored_as="int8"))
    result = f"tensor<{values.size}x{uniform_type(params, 'f32', None)}>"
    source = f"tensor<{values.size}xf32>"
    text = (
        f"func.func @main(%v: {source}) -> {result} {{\n"
        f"%q = stablehlo.uniform_quantize %v : ({source}) -> {result}\nreturn %q : {result}\n}}"
    )
    hlo.register_stablehlo_passes()
    with context():
        module = ir.Module.parse(text)
        passes = "builtin.module(func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo))"
        PassManager.parse(passes).run(module.operation)
        (made,) = hlo.eval_module(module, [ir.DenseElementsAttr.get(values)])
        return np.array(ir.DenseElementsAttr(made)).astype(np.int64)


# TFLite ----------------------------------------------------------------------------------------------------


def tflite_model(params: QuantParams, size: int) -> bytes:
    """Return a model of one QUANTIZE operator."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    quantization = schema.QuantizationParametersT()
    quantization.scale, quantization.zeroPoint = [params.tensor_scale], [params.tensor_zero_point]
    source, result = schema.TensorT(), schema.TensorT()
    source.name, source.type, source.shape = "x", schema.TensorType.FLOAT32, [size]
    result.name, result.shape, result.quantization = "y", [size], quantization
    result.type = schema.TensorType.INT16 if params.qtype.bits == 16 else schema.TensorType.INT8
    source.buffer = result.buffer = 0
    operator = schema.OperatorT()
    operator.inputs, operator.outputs, operator.opcodeIndex = [0], [1], 0
    graph = schema.SubGraphT()
    graph.tensors, graph.inputs, graph.outputs, graph.operators = [source, result], [0], [1], [operator]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.QUANTIZE
    code.version = 1
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs, model.buffers = (
        3,
        [code],
        [graph],
        [schema.BufferT()],
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def by_tflite(params: QuantParams, values: Floats) -> npt.NDArray[np.int64]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=tflite_model(params, values.size), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])).astype(np.int64)


# The table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One interpreter beside qprof.

    Attributes:
        values: how many values were quantized.
        at_ties: how many have another integer where value / scale is half way between two, to float32.
        elsewhere: how many have another integer elsewhere.
        largest: the largest difference of integers.
    """

    values: int = 0
    at_ties: int = 0
    elsewhere: int = 0
    largest: int = 0

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.values + other.values,
            self.at_ties + other.at_ties,
            self.elsewhere + other.elsewhere,
            max(self.largest, other.largest),
        )


def compared(params: QuantParams, run: Callable[[QuantParams, Floats], npt.NDArray[np.int64]]) -> Comparison:
    values, ties = probes(params)
    difference = np.abs(run(params, values) - quantize(values, params).astype(np.int64))
    differ = difference > 0
    return Comparison(
        values.size, int((differ & ties).sum()), int((differ & ~ties).sum()), int(difference.max())
    )


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Yield a row of each dialect."""
    model_path, _, plan_path = subject.partition(":")
    model, plan = open_prepared(Path(model_path)).model, load_plan(plan_path)
    read = {
        "StableHLO": parsed(stablehlo.write(plan, model), False),
        "TFLite": parsed(tflite.write(plan, model), True),
    }
    for name, run in (("StableHLO", by_stablehlo), ("TFLite", by_tflite)):
        found, tensors = Comparison(), 0
        for tensor in quantized_tensors(plan, model):
            if name == "StableHLO" or tensor.params.qtype.bits in (8, 16):
                tensors += 1
                for params in per_tensor(signed_equivalent(tensor.params)):
                    found += compared(params, run)
        verified = f"{read[name]} of {len(plan.tensors)}"
        yield {
            "plan": Path(plan_path).stem,
            "dialect": name,
            "verified": verified,
            "run": tensors,
            **asdict(found),
        }


def page(rows: Rows) -> str:
    head = [
        "plan",
        "dialect",
        "functions verified",
        "tensors run",
        "values",
        "other at ties",
        "elsewhere",
        "largest",
    ]
    return table(head, [list(row.values()) for some in rows.values() for row in some])


STAGE = Stage(rows, {"COMPILERS.md": page})
