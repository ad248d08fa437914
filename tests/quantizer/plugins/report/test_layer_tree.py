"""Layers by the modules that they come from: names as exporters write them, and the rows of the table."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.operators.graph import node_view
from qprof_onnx.quantizer.plugins.report.content import NodeRecord, Report
from qprof_onnx.quantizer.plugins.report.html import layer_table, page
from qprof_onnx.quantizer.plugins.report.layer_tree import LayerRow, is_slower, layer_rows, module_of

TORCH = (
    ": net.Net/blocks.0: net.Block/blocks.0.parts: torch.nn.Sequential/"
    "blocks.0.parts.6: net.Gate/mul_3: aten.mul.Tensor"
)


@pytest.mark.parametrize(
    ("name", "namespace", "module"),
    [
        ("node_mul_3", TORCH, "blocks.0.parts.6"),
        ("node_mul", ": net.Net/mul: aten.mul.Tensor", ""),
        ("/model.22/cv2.0/cv2.0.1/act/Mul", "", "model.22.cv2.0.1.act"),
        ("/encoder/layer.3/attention/self/MatMul_1", "", "encoder.layer.3.attention.self"),
        ("model_1/conv2d/Conv2D;model_1/re_lu/Relu", "", "model_1/conv2d"),
        ("block.conv1", "", "block"),
        ("p2o.Conv.16", "", "p2o"),
        ("Conv.16", "", ""),
        ("Mul.1_scaled", "", ""),
        ("Conv_16", "", ""),
    ],
)
def test_the_module_of_a_node_is_read_as_exporters_write_it(name: str, namespace: str, module: str) -> None:
    metadata = {"namespace": namespace} if namespace else {}
    node = ir.Node("", "Relu", [ir.Value(name="x")], name=name, metadata_props=metadata)
    assert module_of(node_view(node)) == module


def layer(name: str, module: str, **figures: float | None) -> NodeRecord:
    known = {"float_us": 1.0, "planned_us": 1.0, "noise": 0.1, **figures}
    node = NodeRecord(name, "Relu", "float", "", "", (), (), None, None, None, None, 0.0, None, module=module)
    return replace(node, **known)  # type: ignore[arg-type]


def inside(name: str, run_by: str, module: str = "") -> NodeRecord:
    return replace(layer(name, module), run_by=run_by)


def drawn(rows: list[LayerRow]) -> list[str]:
    return [f"{'  ' * row.depth}{row.label} {len(row.nodes)}" for row in rows]


def test_rows_have_the_modules_of_the_network_with_their_layers_below() -> None:
    nodes = [
        layer("a", "stem.0"),
        layer("b", "net.layers.0.conv"),
        layer("c", "net.layers.0.act"),
        layer("d", "net.layers.0.act"),
        layer("e", "net.layers.1.conv"),
        layer("f", "net.layers.1"),
        layer("g", ""),
    ]
    found = drawn(layer_rows(nodes, {node.name for node in nodes}))
    assert found == [
        "stem.0 1",
        "net.layers.0 3",
        "  conv 1",
        "  act 2",
        "    c 1",
        "    d 1",
        "net.layers.1 2",
        "  conv 1",
        "  f 1",
        "g 1",
    ]


def test_a_name_may_have_any_number_of_separators() -> None:
    nodes = [layer(name, "/".join("m" * 5000)) for name in "ab"] + [layer("c", "./.")]
    assert drawn(layer_rows(nodes, set("abc"))) == ["m 2", "  a 1", "  b 1", "c 1"]


def test_a_row_of_a_module_has_the_sums_of_its_layers() -> None:
    nodes = [layer("a", "m", float_us=2.0), layer("b", "m", float_us=None, noise=None), layer("c", "")]
    row = layer_rows(nodes, {"a", "b", "c"})[0]
    assert (row.is_module, row.total("float_us"), row.total("noise")) == (True, 2.0, 0.1)
    assert row.total("measured_us") is None


def test_many_layers_of_no_module_between_modules_are_one_row() -> None:
    between = [layer(f"n{number}", "") for number in range(6)]
    rows = layer_rows([layer("a", "m"), layer("b", "m"), *between], {node.name for node in between})
    assert drawn(rows)[:3] == ["m 2", "  others 2", "n0 to n5 6"]
    assert [row.depth for row in rows[3:]] == [1] * 6


def test_layers_without_modules_are_listed_by_their_noise() -> None:
    shown = layer_table([layer("a", "", noise=0.1), layer("b", "", noise=0.9)], ())
    assert [row.label for row in shown.rows] == ["b", "a"]
    assert not shown.has_modules


def test_a_layer_is_slower_by_more_than_the_profiler_is_off() -> None:
    assert is_slower(10.0, 15.0)
    assert not is_slower(10.0, 14.0)
    assert not is_slower(100.0, 109.0)
    assert not is_slower(10.0, 19.0, layers=4)
    assert not is_slower(None, 50.0)


def test_the_times_of_the_layers_add_up_to_those_of_the_run(whole: Report) -> None:
    measured = next(run for run in whole.run_times if run.how == "measured")
    before = sum(node.measured_float_us or 0.0 for node in whole.nodes) + measured.unknown_float_us
    after = sum(node.measured_us or 0.0 for node in whole.nodes) + measured.unknown_us
    assert before == pytest.approx(measured.float_us)
    assert after + measured.conversions_us == pytest.approx(measured.quantized_us)
    assert min(before, after) > 0.0
    rows = layer_table(whole.nodes, whole.run_times).rows
    top = sum(row.total("measured_us") or 0.0 for row in rows if not row.depth)
    assert top == pytest.approx(after)


def test_the_timed_samples_may_have_more_rows_than_those_of_the_profile(whole: Report) -> None:
    assert whole.run_times[-1].relative_size == 50.0
    assert "have 50 times the elements" in page(whole)


def test_what_belongs_to_no_layer_is_told(whole: Report) -> None:
    assert "not attributable to a layer" not in page(whole)
    runs = tuple(replace(run, unknown_us=3.0) for run in whole.run_times)
    assert "not attributable to a layer" in page(replace(whole, run_times=runs))


def test_the_time_without_the_profiler_has_the_last_line(whole: Report) -> None:
    assert "without the profiler" not in page(whole)
    *others, measured = whole.run_times
    timed = replace(measured, plain_float_us=1250.0, plain_us=750.0)
    last = page(replace(whole, run_times=(*others, timed))).partition("one run without the profiler")[2]
    assert not timed.is_slower
    assert replace(timed, plain_us=1300.0).is_slower
    assert last.index("1.25 ms") < last.index("750 ") < last.index("1.67 ")


def test_a_layer_slower_than_float_is_red(whole: Report) -> None:
    slow = replace(whole.nodes[0], measured_float_us=10.0, measured_us=40.0)
    text = page(replace(whole, nodes=(slow, *whole.nodes[1:])))
    assert '<td class="n down" data-v="0.25">0.25 ' in text


def test_nodes_of_bodies_are_below_the_node_that_runs_them() -> None:
    nodes = [
        layer("first", ""),
        inside("a", "inner"),
        inside("b", "inner"),
        inside("inner", "outer"),
        inside("c", "outer"),
        layer("outer", ""),
        layer("last", ""),
    ]
    assert drawn(layer_rows(nodes, {node.name for node in nodes})) == [
        "first 1",
        "outer 5",
        "  inner 3",
        "    a 1",
        "    b 1",
        "    inner 1",
        "  c 1",
        "  outer 1",
        "last 1",
    ]


def test_a_body_that_frames_the_model_keeps_its_row_and_its_modules() -> None:
    nodes = [
        *(
            inside(f"net/{part}/{name}", "net/If_0", f"net/{part}")
            for part in ("stft", "head")
            for name in "ab"
        ),
        layer("net/If_0", "net"),
        layer("last", ""),
    ]
    assert drawn(layer_rows(nodes, {node.name for node in nodes})) == [
        "If_0 5",
        "  stft 2",
        "    a 1",
        "    b 1",
        "  head 2",
        "    a 1",
        "    b 1",
        "  If_0 1",
        "last 1",
    ]
