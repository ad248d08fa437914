"""How long the tool itself takes: seconds of processor time by stage and form, on models of many nodes.

    python tests/benchmarks/run.py scale --work DIR                              all models, all forms
    python tests/benchmarks/run.py scale transformer --work DIR --forms qdq
    python tests/benchmarks/run.py scale 500 1000 --work DIR --forms qdq,regions --cprofile lower

The models have seeded weights: a transformer of about 5,000 nodes, its LayerNorm and Gelu written out in
small operators, and chains of residual blocks of so many nodes as a subject says. Profiles are made by the
runner on two samples. Processor time, so a busy machine does not count.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from frame import Row, Rows, Stage, table
from onnx import TensorProto, helper, numpy_helper
from qprof_onnx.cli.main import GC_THRESHOLDS
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.api.results import summarize
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.evaluation.written_model import smoke_run
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.noise.kept_samples import read_measured
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.conformance import check_conformity
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

T = TypeVar("T")
LAYERS, WIDTH, HEADS, LENGTH = 78, 64, 4, 16


class Builder:
    """Nodes and seeded constants of one graph."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        scale = 1.0 / np.sqrt(shape[0] if len(shape) == 2 else max(1, int(np.prod(shape[1:]))))
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) * np.float32(scale))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "scale", [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def transformer(layers: int = LAYERS) -> onnx.ModelProto:
    """Return an encoder of 64 nodes a layer: attention and feed-forward, both with LayerNorm."""
    b = Builder()
    x = b.add("Add", "x", b.weight(LENGTH, WIDTH))
    for _ in range(layers):
        x = layer_norm(b, b.add("Add", x, attention(b, x)))
        x = layer_norm(b, b.add("Add", x, feed_forward(b, x)))
    return b.model((1, LENGTH, WIDTH), x)


def linear(b: Builder, x: str, inner: int, outer: int) -> str:
    return b.add("Add", b.add("MatMul", x, b.weight(inner, outer)), b.weight(outer))


def attention(b: Builder, x: str) -> str:
    shape = b.constant(np.array([1, LENGTH, HEADS, WIDTH // HEADS], np.int64))
    parts = []
    for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        split = b.add("Reshape", linear(b, x, WIDTH, WIDTH), shape)
        parts.append(b.add("Transpose", split, perm=order))
    query = b.add("Div", parts[0], b.number(4.0))
    scores = b.add("MatMul", query, parts[1])
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), parts[2])
    joined = b.add("Transpose", mixed, perm=[0, 2, 1, 3])
    flat = b.add("Reshape", joined, b.constant(np.array([1, LENGTH, WIDTH], np.int64)))
    return linear(b, flat, WIDTH, WIDTH)


def feed_forward(b: Builder, x: str) -> str:
    wide = linear(b, x, WIDTH, 2 * WIDTH)
    # Gelu: x / 2 * (1 + erf(x / sqrt 2)), and the tanh form that some exporters write.
    erf = b.add("Erf", b.add("Div", wide, b.number(2.0**0.5)))
    gelu = b.add("Mul", b.add("Mul", wide, b.add("Add", erf, b.number(1.0))), b.number(0.5))
    cube = b.add("Mul", b.add("Mul", gelu, gelu), gelu)
    inner = b.add("Add", gelu, b.add("Mul", cube, b.number(0.044715)))
    gate = b.add("Add", b.add("Tanh", b.add("Mul", inner, b.number(0.7978845608))), b.number(1.0))
    again = b.add("Mul", b.add("Mul", gelu, gate), b.number(0.5))
    return linear(b, again, 2 * WIDTH, WIDTH)


def layer_norm(b: Builder, x: str) -> str:
    centred = b.add("Sub", x, b.add("ReduceMean", x, axes=[-1], keepdims=1))
    variance = b.add("ReduceMean", b.add("Pow", centred, b.number(2.0)), axes=[-1], keepdims=1)
    normal = b.add("Div", centred, b.add("Sqrt", b.add("Add", variance, b.number(1e-5))))
    return b.add("Add", b.add("Mul", normal, b.weight(WIDTH)), b.weight(WIDTH))


def chain(nodes: int) -> onnx.ModelProto:
    """Return a chain of residual blocks: Conv, Relu, Conv, Add, Sigmoid, Mul, Tanh."""
    b = Builder()
    x = "x"
    while len(b.nodes) < nodes:
        inner = b.add("Relu", b.add("Conv", x, b.weight(8, 8, 3, 3), pads=[1, 1, 1, 1]))
        both = b.add("Add", x, b.add("Conv", inner, b.weight(8, 8, 3, 3), b.weight(8), pads=[1, 1, 1, 1]))
        x = b.add("Tanh", b.add("Mul", both, b.add("Sigmoid", both)))
    return b.model((1, 8, 6, 6), x)


def timed(stage: str, wanted: str, step: Callable[[], T], spent: Row) -> T:
    """Return what a step gives, note its seconds of processor time, and print what takes them if asked."""
    before = time.process_time()
    with cProfile.Profile() if stage == wanted else nullcontext() as profile:
        found = step()
    spent[stage] = time.process_time() - before
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return found


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield the seconds of each stage; those of a form in rows of their own."""
    gc.set_threshold(*GC_THRESHOLDS)  # as the command does
    proto = transformer(given.layers) if name == "transformer" else chain(int(name))
    wanted, spent = given.cprofile, Row()
    with tempfile.TemporaryDirectory() as folder:
        path, out, kept = (Path(folder, file) for file in ("model.onnx", "out.onnx", "p.yaml"))
        onnx.save(proto, path)
        rng = np.random.default_rng(1)
        shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
        for number in range(2):
            np.savez(Path(folder, f"{number}.npz"), x=rng.standard_normal(shape).astype(np.float32))
        timed("profile", wanted, lambda: profile_model(path, folder, kept), spent)
        prepared = timed("prepare", wanted, lambda: open_prepared(path), spent)
        # What is measured while a profile is read, how noise travels, is of no account: with seeded weights
        # most nodes would stay float for it.
        profile, _, _ = timed("read", wanted, lambda: read_measured(kept, prepared), spent)
        recipe = load_recipe(None, {"min_output_sqnr": 0.0})
        planned = timed("plan", wanted, lambda: plan_from(model_facts(prepared, profile, recipe)), spent)
        nodes, common = len(prepared.graph.nodes), sum(spent[stage] for stage in ("prepare", "read", "plan"))
        yield {"nodes": nodes, "counts": dict(summarize(planned.plan).counts), "seconds": spent}
        for form in given.forms.split(","):
            formed, own = replace(planned.plan, config=replace(planned.plan.config, form=form)), Row()
            model = timed("lower", wanted, lambda f=formed: lower(planned.model, f), own).model
            timed("conformity", wanted, lambda m=model: check_conformity(m, recipe.target, ""), own)
            timed("save", wanted, lambda m=model: save_model(m, out), own)
            session = timed("load", wanted, lambda: open_session(str(out), "model"), own)
            timed("run", wanted, lambda s=session: smoke_run(s, lambda: s, "model", {}), own)
            whole = common + sum(own.values())
            yield {"form": form, "nodes": nodes, "seconds": {**own, "quantize": whole}}


def page(rows: Rows) -> str:
    """Return the seconds of all stages, and milliseconds a node of `quantize` in each form."""
    lines = []
    for name, (common, *forms) in rows.items():
        lines += [
            [name, common["nodes"], "-", stage, f"{s:.2f}", ""] for stage, s in common["seconds"].items()
        ]
        for row in forms:
            for stage, seconds in row["seconds"].items():
                each = f"{1e3 * seconds / row['nodes']:.2f}" if stage == "quantize" else ""
                lines.append([name, row["nodes"], row["form"], stage, f"{seconds:.2f}", each])
    return table(["model", "nodes after preparation", "form", "stage", "s", "ms a node"], lines)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the transformer")
    parser.add_argument(
        "--cprofile", default="", help="also print what takes the time of a stage: prepare, plan, ..."
    )


STAGE = Stage(rows, {"": page}, ("500", "1000", "2000", "5000", "transformer"), options)
