"""Glow's YAML: the exact text that Glow writes, and Glow's names bound to a model."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.records.histogram import UNKNOWN_BINS, EqualBins, Histogram
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.profiles.records.store import save_profile
from qprof_onnx.quantizer.plan.documents import load_profile, profile_in
from qprof_onnx.quantizer.plugins.exchange.exporting import file_content
from qprof_onnx.quantizer.plugins.exchange.glow import dumps_glow, dumps_profile, loads_glow, names_in_file
from qprof_onnx.quantizer.plugins.exchange.profiles import bind

TESTS = Path(__file__).parents[4]
VERSION = "2024-05-11 (05dd99b97) (standalone)"
CASES = json.loads((TESTS / "glow_vectors" / "serialization_generated.json").read_text())["cases"]
SETS = json.loads((TESTS / "glow_vectors" / "serialization.json").read_text())
MODEL = ModelId("00ff" * 16, "1" * 64, 17, "net.onnx")


def model(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    return ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(proto))


NET_MODEL = model(
    """
<ir_version: 8, opset_import: ["": 17]>
net (float[N,4] x) => (float[N,3] out)
<float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3}, int64[1] k = {3}> {
  [fc] f = Gemm (x, w, b)
  s = Sigmoid (f)
  [fc] g = Identity (s)
  ["2/act.1"] r = Relu (g)
  [top] v, i = TopK (r, k)
  [fc] out = Identity (v)
}
"""
)


def loads(text: str) -> Profile:
    return profile_in(text.encode(), "g.yaml")


def bind_glow(profile: Profile) -> Profile:
    return bind(profile, NET_MODEL, MODEL, "g.yaml")


def bins(low: float, high: float, counts: Any) -> EqualBins:
    return EqualBins(float(np.float32(low)), float(np.float32(high)), np.array(counts, np.float32))


def entries(infos: Any) -> list[tuple[str, EqualBins]]:
    return [(info["name"], bins(info["min"], info["max"], info["histogram"])) for info in infos]


# Vectors of Glow


@pytest.mark.parametrize("case", [c for c in CASES if "infos" in c], ids=lambda c: c["name"])
def test_the_text_is_glows_byte_for_byte(case: Any) -> None:
    assert dumps_glow(entries(case["infos"]), case["graph_hash"], VERSION) == case["yaml"]


@pytest.mark.parametrize("case", [c for c in CASES if "infos" in c], ids=lambda c: c["name"])
def test_reading_gives_what_glow_reads(case: Any) -> None:
    assert loads_glow(case["yaml"]) == (entries(case["read_back"]), case["graph_hash"], VERSION)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_a_file_of_glow_is_written_again_as_it_was(case: Any) -> None:
    found, graph_hash, version = loads_glow(case["yaml"])
    assert dumps_glow(found, graph_hash, version) == case["yaml"]


@pytest.mark.parametrize("infos", SETS["sets"], ids=["values", "powers of two"])
def test_writing_and_reading_keeps_names_ranges_histograms_and_hash(infos: Any) -> None:
    given_entries = [(name, bins(low, high, counts)) for name, low, high, counts in infos]
    text = dumps_glow(given_entries, SETS["graph_hash"], "")
    assert loads_glow(text) == (given_entries, SETS["graph_hash"], "")


# The text


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("conv", "conv"),
        ("conv:0", "'conv:0'"),
        ("it's", "'it''s'"),
        ("12", "'12'"),
        ("1e5", "'1e5'"),
        ("true", "'true'"),
        ("~", "'~'"),
        ("", "''"),
        ("-a", "'-a'"),
        ("a/b", "'a/b'"),
        ("a b", "a b"),
    ],
)
def test_names_are_quoted_as_glow_does(name: str, written: str) -> None:
    text = dumps_glow([(name, bins(0, 1, [1]))], 1, "v")
    assert f"- NodeOutputName:  {written}\n" in text
    assert loads_glow(text)[0][0][0] == name


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True))
def test_every_float32_limit_survives(value: float) -> None:
    (_, found), *_ = loads_glow(dumps_glow([("a:0", bins(value, value, [1]))], 0, "v"))[0]
    assert found.minimum == value
    assert np.signbit(found.minimum) == np.signbit(value)


def test_no_entries_are_an_empty_list() -> None:
    text = dumps_glow([], 31, "v")
    assert text.endswith("GraphPreLowerHash: 0x1F\n...\n---\n[]\n...\n")
    assert loads_glow(text) == ([], 31, "v")


def test_a_name_that_glow_cannot_have_is_refused() -> None:
    with pytest.raises(ProfileError, match="'é': contains a character that Glow does not allow"):
        dumps_glow([("é", bins(0, 1, [1]))], 0, "v")


# Reading


GOOD = """---
GlowToolsVersion: 'x.y'
...
---
GraphPreLowerHash: 0x1F
...
---
- NodeOutputName:  'conv:0'
  Min:             -1.5
  Max:             2.25
  Histogram:       [ 4, 0, 7, 1e+06 ]
- NodeOutputName:  'input:0'
  Min:             0.0
  Max:             255.0
  Histogram:       [ 10, 2, 3, 1 ]
...
"""


def test_the_store_recognises_the_format_by_itself() -> None:
    found = loads(GOOD)
    assert (found.origin, found.tool, found.model, found.data) == (
        "glow",
        "Glow x.y",
        ModelId("", "", 0),
        DataId(),
    )
    assert list(found) == ["conv:0", "input:0"]
    histogram = EqualBins(-1.5, 2.25, np.array([4, 0, 7, 1e6]))
    assert found["conv:0"] == TensorProfile("float", None, -1.5, 2.25, 1000011, 0, 0, 0, histogram)


def test_the_first_of_equal_names_wins() -> None:
    found = loads(GOOD.replace("input:0", "conv:0"))
    assert [found["conv:0"].maximum, len(found)] == [2.25, 1]


def test_of_an_entry_without_a_histogram_the_range_is_known() -> None:
    found = loads(GOOD.replace("[ 10, 2, 3, 1 ]", "[  ]"))["input:0"]
    assert (found.count, found.maximum, found.histogram) == (1, 255.0, UNKNOWN_BINS)


def test_another_layout_of_the_same_yaml_is_read_alike() -> None:
    other = GOOD.replace("[ 10, 2, 3, 1 ]", "\n  - 10\n  - 2.0\n  - 3\n  - 1")
    assert loads(other) == loads(GOOD)


def test_a_glow_profile_can_be_stored_in_the_own_format(tmp_path: Path) -> None:
    found = loads(GOOD)
    save_profile(found, tmp_path / "p.yaml")
    assert load_profile(tmp_path / "p.yaml") == found


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "x.y'\n...\n---\n",
            "x.y'\n",
            "document 1: unknown key 'GraphPreLowerHash'|contains 2 YAML documents",
        ),
        ("GlowToolsVersion: 'x.y'\n...\n---\n", "", "contains 2 YAML documents; a Glow profile has three"),
        ("GlowToolsVersion: 'x.y'", "GlowToolsVersion: [", "not YAML"),
        ("GlowToolsVersion: 'x.y'", "GlowToolsVersion: [x]", "GlowToolsVersion must be text"),
        ("0x1F", "xyz", "GraphPreLowerHash must be a whole number from 0 on, not 'xyz'"),
        ("0x1F", "0x10000000000000000", "GraphPreLowerHash has more than 64 bits"),
        ("  Max:             2.25\n", "", "entry 1: key 'Max' is missing"),
        ("  Max:             2.25\n", "  Max: 2.25\n  Mean: 1\n", "entry 1: unknown key 'Mean'"),
        ("2.25", "-2.25", "tensor 'conv:0': Min -1.5 is greater than Max -2.25"),
        ("2.25", "inf", "tensor 'conv:0': Max must be a number, not 'inf'"),
        ("2.25", "1e39", "tensor 'conv:0': Max is 1e.39, beyond float32"),
        ("4, 0", "4, -1", "tensor 'conv:0': Histogram: '-1' is not a count"),
        ("4, 0", "4, nan", "tensor 'conv:0': Histogram: 'nan' is not a count"),
        ("4, 0", "4, 4-4", "tensor 'conv:0': Histogram: '4-4' is not a count"),
        ("[ 4, 0, 7, 1e+06 ]", "7e", "tensor 'conv:0': Histogram: '7e' is not a count"),
        ("[ 4, 0, 7, 1e+06 ]", "7", "tensor 'conv:0': Histogram must be a list"),
        ("'conv:0'", "[]", "entry 1: NodeOutputName must be text"),
        (
            "- NodeOutputName:  'conv:0'",
            "- 3\n- NodeOutputName: 'conv:0'",
            "entry 1 must be a mapping, not 3",
        ),
    ],
)
def test_each_malformed_glow_file_has_its_sentence(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    assert old in GOOD
    (tmp_path / "g.yaml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ProfileError, match=sentence) as caught:
        load_profile(tmp_path / "g.yaml")
    assert re.match(r"g\.yaml: .*; .+", str(caught.value))


def test_another_tool_version_is_accepted() -> None:
    assert loads(GOOD.replace("'x.y'", "2024")).tool == "Glow 2024"


# Names (SPEC B.3)


def test_names_are_operator_names_or_type_and_output_made_legal_and_unique() -> None:
    assert names_in_file(NET_MODEL) == {
        "x": "x:0",
        "w": "w:0",
        "b": "b:0",
        "k": "k:0",
        "f": "fc:0",
        "s": "Sigmoid_s:0",
        "g": "fc__1:0",
        "r": "A2_act_1:0",
        "v": "top:0",
        "i": "top:1",
        "out": "fc__2:0",
    }


def test_a_tail_of_digits_gives_way_when_the_name_is_taken() -> None:
    found = names_in_file(
        model(
            """
<ir_version: 8, opset_import: ["": 17]>
net (float[2] a__1) => (float[2] c) { [a__1] b = Relu (a__1)  [a_] c = Relu (b) }
"""
        )
    )
    assert found == {"a__1": "a__1:0", "b": "a__2:0", "c": "a_:0"}


# Binding


def glow_profile(*names: str, top: float = 2.0) -> Profile:
    histogram = EqualBins(-1.0, top, np.array([1.0, 2.0, 0.0]))
    found = TensorProfile("float", None, -1.0, top, 3, 0, 0, 0, histogram)
    return Profile(ModelId("", "", 0), DataId(), dict.fromkeys(names, found), "glow", "v")


def test_binding_gives_tensor_names_in_graph_order_with_dtype_and_shape() -> None:
    bound = bind_glow(glow_profile("fc:0", "w:0", "top:1", "x:0", "fc_bias:0", "Sigmoid_s:0"))
    assert list(bound) == ["x", "f", "s"]
    assert (bound.model, bound.origin, bound["x"].shape, bound["x"].dtype) == (
        MODEL,
        "glow",
        (None, 4),
        "float",
    )
    assert (bound["f"].shape, bound["f"].minimum, bound["f"].count) == ((None, 3), -1.0, 3)


def test_entries_that_the_model_has_no_tensor_for_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    bind_glow(glow_profile("fc:0", "w:0", "x:0", "fc_bias:0"))
    assert caplog.messages == [
        "g.yaml: left out 1 entries without a tensor in the prepared model: 'fc_bias:0'"
    ]


def test_a_profile_of_another_model_is_refused() -> None:
    with pytest.raises(
        ProfileError, match=r"none of its 1 entries \('conv:0'\) belongs to an activation of net\.onnx"
    ):
        bind_glow(glow_profile("conv:0"))


def test_an_entry_that_may_be_of_a_layout_transpose_is_not_bound() -> None:
    found = glow_profile("fc:0", "x:0", "top:0")
    parts = glow_profile("top__1:0", "top__2:0", top=3.0)
    mixed = Profile(found.model, found.data, {**found.tensors, **parts.tensors}, "glow")
    assert list(bind_glow(mixed)) == ["x", "f"]


def test_an_entry_that_lowering_copied_is_certain() -> None:
    found = glow_profile("top:0", "top__2:0")
    parts = glow_profile("top__1:0", top=3.0)
    mixed = Profile(found.model, found.data, {**found.tensors, **parts.tensors}, "glow")
    assert list(bind_glow(mixed)) == ["v"]


# Writing a profile


def measured(values: list[float]) -> TensorProfile:
    array = np.array(values, np.float32)
    histogram = Histogram.of(array)
    return TensorProfile(
        "float", None, float(array.min()), float(array.max()), array.size, 0, 0, 0, histogram
    )


MEASURED = Profile(
    MODEL, DataId(1), {"x": measured([-1, 0.5, 3]), "f": measured([-2, 2])}, "qprof", "qprof 0.1.0"
)


def test_a_profile_of_qprof_is_written_with_glows_names_sorted_and_2000_bins() -> None:
    found, graph_hash, version = loads_glow(str(file_content(MEASURED, NET_MODEL, "glow")))
    assert [name for name, _ in found] == ["fc:0", "x:0"]
    assert (graph_hash, version) == (0x00FF00FF00FF00FF, "qprof 0.1.0")
    assert found[1][1] == MEASURED["x"].histogram.resampled(-1.0, 3.0, 2000)


def test_what_was_written_for_glow_binds_again() -> None:
    bound = bind_glow(loads(dumps_profile(MEASURED, names_in_file(NET_MODEL))))
    assert [(name, t.minimum, t.maximum, t.count) for name, t in bound.items()] == [
        ("x", -1, 3, 3),
        ("f", -2, 2, 2),
    ]


def test_a_range_without_a_histogram_is_written_with_an_empty_one() -> None:
    profile = loads(GOOD.replace("[ 10, 2, 3, 1 ]", "[  ]"))
    assert loads(dumps_profile(profile, {name: name for name in profile})) == profile


def test_a_tensor_without_a_glow_name_is_refused() -> None:
    with pytest.raises(ProfileError, match="tensor 'f': has no Glow name"):
        dumps_profile(MEASURED, {"x": "x:0"})
