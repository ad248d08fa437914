"""Hold the types that are written for compilers against the interpreters of these compilers.

Needs `pip install torch-mlir ai-edge-litert flatbuffers` beside qprof.

    python tests/benchmarks/compiler_types.py MODEL.onnx PLAN.yaml [MODEL.onnx PLAN.yaml ...]

For each tensor of a plan: StableHLO's verifier parses its function; StableHLO's interpreter and a TFLite
model of one QUANTIZE operator quantize values over the whole range, beyond it, and half way between all
integers; the integers are compared with qprof's. The interpreter has no per-axis arithmetic and no unsigned
storage (its pass makes ui8 to i8), so axes are run channel by channel and unsigned types as their signed
equivalents. A row counts tensors; the exceptions are ties.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from qprof_onnx import load_plan
from qprof_onnx.quantizer.exchange.compilers import stablehlo, tflite
from qprof_onnx.quantizer.exchange.compilers.quantized_types import (
    quantized_tensors,
    signed_equivalent,
    uniform_type,
)
from qprof_onnx.quantizer.numerics.affine import QuantParams, quantize
from qprof_onnx.quantizer.prepare.opening import open_prepared

Floats = npt.NDArray[np.float32]
CHANNELS = 4
"""How many channels of a per-axis type are run: the first ones."""


def probes(params: QuantParams) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return values around and half way between integers, and which of them are ties, to float32's spacing."""
    low, high = max(params.qtype.low, -70_000), min(params.qtype.high, 70_000)
    steps = np.unique(np.linspace(low - 3, high + 3, 2000).round()) - params.zero_point[0]
    offsets = np.array([-0.5, -0.3, 0.0, 0.3, 0.5])
    scale = np.float32(params.scale[0])
    values = ((steps[:, None] + offsets).astype(np.float32) * scale).ravel().astype(np.float32)
    quotients = values / scale
    room = 2 * np.spacing(np.abs(quotients) + abs(params.zero_point[0]) + 1)
    ties = np.abs(quotients - np.floor(quotients) - 0.5) <= room
    return values, ties


def per_tensor(params: QuantParams) -> list[QuantParams]:
    """Return the parameters of single channels, as of tensors of their own."""
    pairs = list(zip(params.scale, params.zero_point, strict=True))[:CHANNELS]
    return [replace(params, scale=(s,), zero_point=(z,), axis=None, block_size=None) for s, z in pairs]


# StableHLO ----------------------------------------------------------------------------------------------------


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


# TFLite -------------------------------------------------------------------------------------------------------


def tflite_model(params: QuantParams, size: int) -> bytes:
    """Return a model of one QUANTIZE operator."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    types = {"int8": schema.TensorType.INT8, "int16": schema.TensorType.INT16, "int32": schema.TensorType.INT32}
    made = schema.TensorT
    quantization = schema.QuantizationParametersT()
    quantization.scale, quantization.zeroPoint = [params.scale[0]], [params.zero_point[0]]
    tensors = []
    for name, kind, quant in (("x", schema.TensorType.FLOAT32, None), ("y", types[params.qtype.storage], quantization)):
        tensor = made()
        tensor.name, tensor.type, tensor.shape, tensor.quantization, tensor.buffer = name, kind, [size], quant, 0
        tensors.append(tensor)
    operator = schema.OperatorT()
    operator.inputs, operator.outputs, operator.opcodeIndex = [0], [1], 0
    graph = schema.SubGraphT()
    graph.tensors, graph.inputs, graph.outputs, graph.operators = tensors, [0], [1], [operator]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.QUANTIZE
    code.version = 1
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [code], [graph], [schema.BufferT()]
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


# The table ----------------------------------------------------------------------------------------------------


def measure(model_path: str, plan_path: str) -> Counter[str]:
    opened = open_prepared(Path(model_path))
    model = getattr(opened, "model", opened)
    plan = load_plan(plan_path)
    counts: Counter[str] = Counter()
    counts["parsed"] = parsed(stablehlo.write(plan, model), False)
    counts["parsed tfl"] = parsed(tflite.write(plan, model), True)
    for tensor in quantized_tensors(plan, model):
        counts["tensors"] += 1
        signed = signed_equivalent(tensor.params)
        for params in per_tensor(signed):
            values, ties = probes(params)
            ours = quantize(values, params).astype(np.int64)
            for name, run in (("stablehlo", by_stablehlo), ("tflite", by_tflite)):
                if params.qtype.bits in (4, 32) and name == "tflite":
                    continue
                theirs = run(params, values)
                if params.qtype.bits == 7 and name == "tflite":
                    theirs = theirs.clip(params.qtype.low, params.qtype.high)
                counts[f"{name} values"] += values.size
                counts[f"{name} differ at ties"] += int(((theirs != ours) & ties).sum())
                counts[f"{name} differ elsewhere"] += int(((theirs != ours) & ~ties).sum())
                counts[f"{name} by more than 1"] += int((np.abs(theirs - ours) > 1).sum())
    return counts


if __name__ == "__main__":
    for model_file, plan_file in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(Path(model_file).name, dict(measure(model_file, plan_file)))
