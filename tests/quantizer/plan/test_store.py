"""Plans on disk: readable, edited by people, and never misread."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.numerics.affine import INT8, INT32, TYPES, UINT8, QuantParams
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan, SharedScale
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.store import dumps, load_plan, loads
from qprof_onnx.quantizer.targets.config import QuantConfig

DATA = Path(__file__).parents[2] / "data"
MODEL = ModelId("5a" * 32, "c3" * 32, 17, "digits.onnx")


def f32(value: float) -> float:
    return float(np.float32(value))


X = QuantParams((f32(0.0123),), (128,), UINT8)
W = QuantParams((f32(0.1), 0.25), (0, 0), INT8, axis=0)
B = QuantParams((f32(1e-5), f32(3e-5)), (0, 0), INT32, axis=0)
PLAN = QuantPlan(
    MODEL,
    QuantConfig(keep_float=("Softmax", "/head/*"), calibrator="mse", min_tensor_sqnr=20.0),
    {"x": X, "w": W, "7": B},
    {
        "conv1": NodePlan(Kind.QUANTIZED),
        "add": NodePlan(Kind.QUANTIZED, "", {1: X, 0: replace(X, zero_point=(3,))}),
        "sum": NodePlan(Kind.FLOAT, 'no rule for Einsum: it has "many" forms'),
    },
    (Finding(Code.OPSET_RAISED, "opset raised from 11 to 13"),),
    "qprof 0.1.0",
)
TEXT = """\
format: qprof-plan/1
tool: qprof 0.1.0
model:
  file: digits.onnx
  structure: "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
  weights: c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3
  opset: 17
config:
  target: onnxruntime-x86
  mode: static
  form: qdq
  schema: asymmetric
  calibrator: mse
  activation_type: uint8
  weight_schema: symmetric
  weight_type: int8
  block_size: 0
  fit_size: ""
  kv_cache: float
  float_type: float32
  io: float
  granularity: per-channel
  min_tensor_sqnr: 20.0
  min_output_sqnr: null
  tolerance: null
  output_kind: []
  equalization: auto
  bias_correction: auto
  rounding: nearest
  cost_model: auto
  keep_float: [Softmax, "/head/*"]
findings:
  - {code: opset-raised, sentence: opset raised from 11 to 13}
tensors:
  x: {type: uint8, scale: 0.0123, zero_point: 128}
  w: {type: int8, axis: 0, scale: [0.1, 0.25], zero_point: 0}
  "7": {type: int32, axis: 0, scale: [1.0e-05, 3.0e-05], zero_point: 0}
nodes:
  conv1: {kind: quantized}
  add: {kind: quantized, inputs: {0: {type: uint8, scale: 0.0123, zero_point: 3}, \
1: {type: uint8, scale: 0.0123, zero_point: 128}}}
  sum: {kind: float, reason: "no rule for Einsum: it has \\"many\\" forms"}
shared_scales: []
...
"""
GROUP = SharedScale((-1.0, 2.0), ("x", "it's y"), ("concat", "7"), {"x": (-1.0, 1.5), "it's y": (-0.5, 2.0)})
GROUP_TEXT = """\
shared_scales:
  - range: [-1.0, 2.0]
    range_set_by: [x, "it's y"]
    tied_by: [concat, "7"]
    members:
      x: [-1.0, 1.5]
      "it's y": [-0.5, 2.0]
"""

scales = st.floats(2.0**-149, 2.0**127, width=32)


@st.composite
def params(draw: st.DrawFn) -> QuantParams:
    number = draw(st.integers(1, 4))
    axis = draw(st.integers(0, 3)) if number > 1 else draw(st.none() | st.integers(0, 3))
    block = draw(st.none() | st.integers(1, 64)) if axis is not None else None
    each = {"min_size": number, "max_size": number}
    scale = tuple(draw(st.lists(scales, **each)))
    qtype = draw(st.sampled_from(list(TYPES.values())))
    points = tuple(
        draw(st.lists(st.just(0) if qtype.is_float else st.integers(qtype.low, qtype.high), **each))
    )
    return QuantParams(scale, points, qtype, axis, block)


ends = st.floats(-1e6, 1e6)
groups = st.builds(
    SharedScale,
    st.tuples(ends, ends),
    st.lists(st.text()).map(tuple),
    st.lists(st.text()).map(tuple),
    st.dictionaries(st.text(), st.tuples(ends, ends), min_size=1, max_size=3),
)
nodes = st.builds(
    NodePlan,
    st.sampled_from(list(Kind)),
    st.text(),
    st.dictionaries(st.integers(0, 20), params(), max_size=2),
)


found_things = st.builds(
    Finding,
    st.sampled_from(Code),
    st.text(min_size=1),
    st.text(),
    st.dictionaries(st.text(), st.text() | st.integers(-9, 9) | st.floats(-1e9, 1e9), max_size=2),
    st.text(),
)


@given(
    st.dictionaries(st.text(), params(), max_size=4),
    st.dictionaries(st.text(), nodes, max_size=4),
    st.lists(found_things, max_size=3).map(tuple),
    st.lists(st.text()).map(tuple),
    st.lists(groups, max_size=2).map(tuple),
)
def test_loading_what_was_saved_gives_the_same(
    tensors: dict[str, QuantParams], decisions: dict[str, NodePlan], findings: Any, names: Any, found: Any
) -> None:
    plan = QuantPlan(MODEL, QuantConfig(keep_float=names), tensors, decisions, findings, "qprof 0.1.0", found)
    loaded = loads(dumps(plan))
    assert loaded == plan
    assert (list(loaded.tensors), list(loaded.nodes), loaded.tool) == (
        list(tensors),
        list(decisions),
        plan.tool,
    )


def test_the_text_is_one_line_for_each_tensor_and_node() -> None:
    assert dumps(PLAN) == TEXT


def test_the_numbers_of_blocks_are_texts_and_lists_are_read_alike() -> None:
    blocks = QuantParams((f32(0.1), 0.25, 1.0), (3, -1, 0), TYPES["int4"], axis=0, block_size=16)
    text = dumps(replace(PLAN, tensors={"v": blocks}))
    lists, changes = re.subn(
        'scale: "[^"]+", zero_point: "[^"]+"', "scale: [0.1, 0.25, 1], zero_point: [3, -1, 0]", text
    )
    assert changes == 1
    assert loads(text).tensors == loads(lists).tensors == {"v": blocks}


@pytest.mark.parametrize(("name", "point"), [("int4", 8), ("uint4", 16), ("uint4", 255), ("int7", -65)])
def test_a_text_of_zero_points_outside_of_the_type_is_refused(name: str, point: int) -> None:
    blocks = QuantParams((f32(0.1), 0.25), (3, 0), TYPES[name], axis=0, block_size=16)
    wrong = QuantParams((f32(0.1), 0.25), (point, 0), TYPES["int8" if name[0] == "i" else "uint8"], 0, 16)
    (theirs,) = re.findall('zero_point: ("[^"]+")', dumps(replace(PLAN, tensors={"v": wrong})))
    text = re.sub('zero_point: "[^"]+"', f"zero_point: {theirs}", dumps(replace(PLAN, tensors={"v": blocks})))
    with pytest.raises(PlanError, match=f"zero_point {point} is outside of {name}"):
        loads(text)


def test_groups_are_written_with_the_range_of_each_member() -> None:
    plan = replace(PLAN, shared_scales=(GROUP,))
    assert dumps(plan) == TEXT.replace("shared_scales: []\n", GROUP_TEXT)
    assert loads(dumps(plan)) == plan


def test_a_file_of_the_format_still_loads() -> None:
    assert load_plan(DATA / "plan-small.yaml") == PLAN


def test_a_file_with_every_section_is_read_and_written() -> None:
    text = (DATA / "plan-adjusted.yaml").read_text(encoding="utf-8")
    plan = loads(text)
    assert plan.shared_scales
    assert all((plan.adjustments.equalization, plan.adjustments.biases, plan.adjustments.roundings))
    codes = {entry.float_reason.code for entry in plan.nodes.values() if entry.kind is Kind.FLOAT}
    assert {ReasonCode.NOISE_BUDGET, ReasonCode.NO_KERNEL, ReasonCode.BY_REQUEST} <= codes
    assert dumps(plan) == text


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            "{code: no-kernal, target: t, operator: o}",
            "reason: code 'no-kernal' is not one of .*did you mean 'no-kernel'",
        ),
        ("{code: no-kernel, target: t}", "key 'operator' is missing"),
        ("{code: by-request, pattern: 7}", "must be text"),
        ("{code: below-sqnr-limit, tensor: x, type: uint8, sqnr: low, limit: 20}", "must be a number"),
    ],
)
def test_a_malformed_reason_is_named(reason: str, sentence: str) -> None:
    text = TEXT.replace('reason: "no rule for Einsum: it has \\"many\\" forms"', f"reason: {reason}")
    assert text != TEXT
    with pytest.raises(PlanError, match=sentence):
        loads(text)


def test_an_older_plan_without_a_setting_has_its_default() -> None:
    found = loads(TEXT.replace("  min_tensor_sqnr: 20.0\n", "")).config
    assert found.min_tensor_sqnr == QuantConfig().min_tensor_sqnr


# Edited by people


@pytest.mark.parametrize(
    ("old", "new", "name", "expected"),
    [
        ("scale: 0.0123, zero", "scale: 0.1, zero", "x", QuantParams((f32(0.1),), (128,), UINT8)),
        ("scale: 0.0123, zero", "scale: 1e-3, zero", "x", QuantParams((f32(1e-3),), (128,), UINT8)),
        ("scale: 0.0123, zero", "scale: 1, zero", "x", QuantParams((1.0,), (128,), UINT8)),
        ("zero_point: 128", "zero_point: [128]", "x", X),
        ("[0.1, 0.25], zero_point: 0", "[0.1, 0.25], zero_point: [0, 1]", "w", replace(W, zero_point=(0, 1))),
        ('"7"', "7", "7", B),
        ("  x: {type: uint8, scale: 0.0123, zero_point: 128}",
         "  x:\n    zero_point: 128  # half of 256\n    scale: 0.0123\n    type: uint8", "x", X),
    ],
)  # fmt: skip
def test_a_persons_spelling_is_understood(old: str, new: str, name: str, expected: QuantParams) -> None:
    assert old in TEXT
    assert loads(TEXT.replace(old, new, 1)).tensors[name] == expected


def test_a_node_that_was_set_to_float_is_read_so() -> None:
    edited = TEXT.replace("conv1: {kind: quantized}", "conv1: {kind: float, reason: by hand}")
    assert loads(edited).nodes["conv1"] == NodePlan(Kind.FLOAT, "by hand")


def test_an_input_may_be_keyed_by_a_quoted_number() -> None:
    assert loads(TEXT.replace("{0: {", '{"0": {')) == PLAN


def test_findings_of_another_version_are_left_out() -> None:
    assert loads(TEXT.replace("code: opset-raised", "code: weights-rounded")).findings == ()


def test_findings_may_be_deleted() -> None:
    assert (
        loads(TEXT.replace("  - {code: opset-raised, sentence: opset raised from 11 to 13}\n", "")).findings
        == ()
    )


MALFORMED = {
    "unknown setting": ("  schema:", "  shcema:", "config: unknown key 'shcema'; did you mean 'schema'"),
    "unknown schema": (
        "asymmetric",
        "assymetric",
        "config: schema 'assymetric' is not one of .*did you mean 'asymmetric'",
    ),
    "exponents out of bounds": (
        "...",
        "adjustments: {equalization: {x: {axis: 1, inserted: false, log2_scales: 0 -61}}}\n...",
        "equalization 'x': log2_scales must be whole numbers from -60 to 60",
    ),
    "a bias that is no number": (
        "...",
        "adjustments: {biases: {conv1: 1.0 nan}}\n...",
        "bias 'conv1': must be finite numbers with spaces between them",
    ),
    "offsets that are no base 64": (
        "...",
        "adjustments: {roundings: {conv1: {params: \"00\", offsets: '!'}}}\n...",
        "rounding 'conv1': offsets must be int8 numbers, deflated and in base 64",
    ),
    "offsets that are not deflated": (
        "...",
        'adjustments: {roundings: {conv1: {params: "00", offsets: AAAA}}}\n...',
        "rounding 'conv1': offsets must be int8 numbers, deflated and in base 64",
    ),
    "unknown type": ("uint8, scale", "unit8, scale", "tensor 'x': type 'unit8' is not one of.*mean 'uint8'"),
    "negative scale": ("scale: 0.0123", "scale: -0.0123", "'x': scale -0.0123 is not a positive float32"),
    "scale too small": ("scale: 0.0123", "scale: 1e-50", "'x': scale 1e-50 is not a positive float32"),
    "scale too large": ("scale: 0.0123", "scale: 1e39", r"'x': scale 1e\+39 is not a positive float32"),
    "scale NaN": ("scale: 0.0123", "scale: .nan", "tensor 'x': scale must be finite"),
    "list without axis": (
        "axis: 0, scale: [0.1",
        "scale: [0.1",
        "tensor 'w': 2 scales without an axis; name",
    ),
    "block without axis": (
        "scale: 0.0123",
        "block_size: 4, scale: 0.0123",
        "tensor 'x': .* without an axis; name",
    ),
    "scales that are no base 64": (
        "scale: 0.0123",
        "scale: a lot",
        "'x': scale, if it is text, must be float32 numbers, deflated and in base 64",
    ),
    "bytes after the scales": ("scale: 0.0123", "scale: eJz70OppAwAGIQH7AAA=", "'x': scale, if it is text"),
    "scales of half a number": ("scale: 0.0123", "scale: eJxjYAAAAAIAAQ==", "'x': scale, if it is text"),
    "text as zero point": (
        "zero_point: 128",
        "zero_point: half",
        "'x': zero_point, if it is text, must be uint8",
    ),
    "no scales": ("[0.1, 0.25]", "[]", "tensor 'w': scale is empty"),
    "too few zero points": (
        "0.25], zero_point: 0",
        "0.25], zero_point: [0]",
        "'w': 2 scales but 1 zero points",
    ),
    "fractional zero point": (
        "zero_point: 128",
        "zero_point: 1.5",
        "zero_point must be a whole number or .*, not 1.5",
    ),
    "zero point beyond": ("zero_point: 128", "zero_point: 256", "'x': zero_point 256 is outside of uint8"),
    "negative axis": (
        "axis: 0, scale: [0.1",
        "axis: -1, scale: [0.1",
        "tensor 'w': axis must be a whole number from 0 on, not -1",
    ),
    "unknown kind": (
        "kind: quantized",
        "kind: quantised",
        "'conv1': kind 'quantised' is not one of.*mean 'quantized'",
    ),
    "input by name": ("{0: {", "{x: {", "node 'add': inputs: 'x' is not an input's number"),
    "input number twice": (" 1: {", " 00: {", "node 'add': inputs: '00' is not an input's number"),
    "type of an input": (
        "{0: {type: uint8",
        "{0: {type: u8",
        "node 'add': input '0': type 'u8' is not one of",
    ),
}


@pytest.mark.parametrize("way", MALFORMED)
def test_each_way_of_being_malformed_has_its_sentence(way: str, tmp_path: Path) -> None:
    old, new, sentence = MALFORMED[way]
    assert old in TEXT
    (tmp_path / "plan.yaml").write_text(TEXT.replace(old, new, 1))
    with pytest.raises(PlanError, match=sentence) as caught:
        load_plan(tmp_path / "plan.yaml")
    assert re.match(r"plan\.yaml: .*; .+", str(caught.value)), "file, what, and what to do"
