"""Prompt and answer of a language model are priced apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.quantizer.costs.kernels import Sizes, Work, attention_work
from qprof_onnx.quantizer.costs.predicted import CostModel
from qprof_onnx.quantizer.costs.token_runs import token_costs
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.targets.cost_table import Conditions, CostTable
from qprof_onnx.quantizer.targets.loading import load_recipe

WIDTH = 64
DECODER = f"""
<ir_version: 9, opset_import: ["": 17]>
decoder (int64[batch, new] input_ids, float[batch, past, {WIDTH}] past_key_values)
    => (float[batch, new, {WIDTH}] logits, float[batch, total, {WIDTH}] present) {{
    x = Gather (table, input_ids)
    present = Concat <axis = 1> (past_key_values, x)
    turned = Transpose <perm = [0, 2, 1]> (present)
    scores = MatMul (x, turned)
    read = MatMul (scores, present)
    logits = MatMul (read, head)
}}
"""


def prepared(text: str = DECODER) -> PreparedModel:
    proto = parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name in ("table", "head"):
        array = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    return PreparedModel(model, index(model), model_id(model, "decoder.onnx"), ())


def costs(**products: tuple[float, float]) -> CostTable:
    """Return a table with the microseconds of products with constant weights, of one row and of 64."""
    points: dict[str, tuple[tuple[float, ...], ...]] = {
        f"MatMul:{form}": tuple(
            (inner, columns, rows, time)
            for inner in (1.0, 1e6)
            for columns in (1.0, 1e6)
            for rows, time in zip((1.0, 64.0), times, strict=True)
        )
        for form, times in products.items()
    }
    for kernel, axes in (("MatMul:activations", 3), ("Gather", 2), ("Concat", 2), ("Transpose", 1)):
        corners = itertools.product((1.0, 1e9), repeat=axes)
        points[f"{kernel}:float"] = tuple((*corner, 0.05) for corner in corners)
    return CostTable(Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 1), points)


TIMES: Mapping[str, tuple[float, float]] = {
    "float": (100.0, 1000.0),
    "packed4": (20.0, 900.0),
    "packed8": (30.0, 700.0),
    "dynamic": (40.0, 300.0),
}


def planned(**settings: object) -> QuantPlan:
    model = prepared()
    recipe = replace(load_recipe("onnxruntime-x86", settings), measured=costs(**TIMES))
    return plan_from(model_facts(model, Profile(model.identity, DataId(), {}), recipe)).plan


@pytest.mark.parametrize(
    ("settings", "prompt", "answer"),
    [
        ({"mode": "weight-only"}, 0.7, 0.3),
        ({"mode": "weight-only", "weight_type": "int4", "block_size": 32}, 0.9, 0.2),
        ({"mode": "dynamic"}, 0.3, 0.4),
    ],
)
def test_a_prompt_and_an_answer_are_predicted_apart(
    settings: dict[str, object], prompt: float, answer: float
) -> None:
    plan = planned(**settings)
    time = plan.origin.time
    assert time is not None
    assert (time.prompt, time.answer) == (64, 64)
    assert time.prompt_ratio == pytest.approx(prompt, abs=0.01)  # 0.2 us are spent on the other nodes
    assert time.answer_ratio == pytest.approx(answer, abs=0.01)
    total = (1000 * prompt + 64 * 100 * answer) / (1000 + 64 * 100)
    assert time.planned_us / time.float_us == pytest.approx(total, abs=0.01)
    assert f"{time.answer_ratio:.2f} for each of 64 tokens of an answer" in time.text
    assert (
        time.speedups_text
        == f"prompt of 64 tokens {1 / time.prompt_ratio:.2f}, answer of 64 tokens {1 / time.answer_ratio:.2f}"
    )
    assert loads(dumps(plan)).origin.time == time


def test_the_cache_is_as_long_as_the_tokens_before() -> None:
    recipe = load_recipe("onnxruntime-x86", {})
    found = token_costs(prepared().model, costs(**TIMES), recipe.target)
    assert found is not None
    shapes = [model.sizes.shape("scores") for model in found.models]
    assert shapes == [(1, 64, 64), (1, 1, 97)]


def test_a_model_without_tokens_is_one_run_and_one_of_unknown_sizes_none() -> None:
    table, target = costs(**TIMES), load_recipe("onnxruntime-x86", {}).target
    nodes = "{ a = MatMul (x, table) y = MatMul (a, head) }"
    for dims, runs in (("N, 64", 1), ("1, 64", 1), ("N, T, 64", None)):
        text = f'<ir_version: 9, opset_import: ["": 17]> g (float[{dims}] x) => (float[] y) {nodes}'
        found = token_costs(prepared(text).model, table, target)
        assert (None if found is None else len(found.models)) == runs


@pytest.mark.parametrize(
    ("node", "keys"),
    [
        ("Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v, , past_key, past_value)", 23),
        ("com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>"
         " (q, k, v, past_key, past_value, lengths, all)", 23),
        ("com.microsoft.MultiHeadAttention <num_heads = 4> (q, q, q)", 3),
    ],
)  # fmt: skip
def test_an_attention_takes_as_long_as_its_products_softmax_and_copies_of_the_cache(
    node: str, keys: int
) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>
        g (float[1, 3, 32] q, float[1, 3, 16] k, float[1, 3, 16] v, float[1, 2, 20, 8] past_key,
           float[1, 2, 20, 8] past_value, int32[1] lengths, int32 all)
        => (float[1, 3, 32] y) {{ y = {node} }}"""
    model = prepare(ir.serde.deserialize_model(parser.parse_model(text))).model
    graph = index(model)
    shapes = {name: tuple(int(dim or 1) for dim in graph.shape(name) or ()) for name in graph.values}
    (attention,) = graph.nodes
    cache = Work("Concat", (8.0 * keys, 16.0 * keys))
    assert attention_work(attention, Sizes(graph, shapes)) == (
        Work("MatMul:activations", (8.0, keys, 3.0), 4.0),
        Work("Softmax", (keys, 12.0 * keys)),
        Work("MatMul:activations", (keys, 8.0, 3.0), 4.0),
        *((cache, cache) if keys == 23 else ()),
    )
    times = {"MatMul:activations": (3, 7.0), "Softmax": (2, 5.0), "Concat": (2, 11.0)}
    points = {
        f"{kernel}:float": tuple((*corner, time) for corner in itertools.product((1.0, 1e9), repeat=axes))
        for kernel, (axes, time) in times.items()
    }
    table = CostTable(Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 1), points)
    profile = Profile(model_id(model, "m.onnx"), DataId(), {})
    expected = 2 * 4 * 7.0 + 5.0 + (2 * 11.0 if keys == 23 else 0.0)
    assert CostModel(graph, profile, table, shapes).floating == {attention.name: pytest.approx(expected)}
