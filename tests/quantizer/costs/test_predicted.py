"""The times of nodes follow from the kernels of a table, with layouts, fusions and conversions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.costs.kernels import Sizes, Work, fused_nodes, work_of
from qprof_onnx.quantizer.costs.predicted import (
    CostModel,
    conversions_of,
    total_microseconds,
)
from qprof_onnx.quantizer.costs.shapes import runs_of, shapes_of
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.operators.functions import CHAIN
from qprof_onnx.quantizer.plan.plan import Implementation, Kind, NodePlan
from qprof_onnx.quantizer.planning.plan_model import model_facts
from qprof_onnx.quantizer.plugins.tune.node_times import node_times
from qprof_onnx.quantizer.targets.cost_table import Conditions, CostTable, costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import Network, network

CONDITIONS = Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 1)
POINTWISE = (32, 32, 1, 1)
WINDOW = (32, 32, 3, 3)
SHAPE = (1, 32, 8, 8)


def table(**kernels: float) -> CostTable:
    """Return a table of kernels whose time does not depend on sizes; `__` stands for a colon."""
    axes = {"Conv": 4, "MatMul": 3, "Softmax": 2, "LayerNormalization": 2}
    points = {}
    for name, time in kernels.items():
        count = axes.get(name.split("__", maxsplit=1)[0], 1)
        corners = itertools.product((1.0, 1e9), repeat=count)
        points[name.replace("__", ":")] = tuple((*corner, time) for corner in corners)
    return CostTable(CONDITIONS, points)


@pytest.fixture(scope="module")
def two_convolutions() -> Network:
    """A float operator between two convolutions that are quantized."""
    return network("a = Conv (x, v) b = Erf (a) y = Conv (b, w)", {"v": WINDOW, "w": WINDOW}, shape=SHAPE)


@pytest.fixture(scope="module")
def costs_table() -> CostTable:
    return table(
        Conv__window__float=100.0,
        Conv__window__integer=30.0,
        Erf__float=7.0,
        QuantizeLinear__integer=2.0,
        DequantizeLinear__integer=3.0,
        ReorderInput__float=11.0,
        ReorderOutput__float=13.0,
        Layout__integer=17.0,
    )


def works(net: Network, *, integer: bool = False) -> Mapping[str, Work]:
    """Return the work of each node."""
    sizes = Sizes(net.graph, shapes_of(net.graph, net.profile))
    return {str(node.name): work_of(node, sizes, integer=integer) for node in net.graph.nodes}


def test_a_float_model_has_the_times_of_its_kernels_and_changes_of_layout(
    two_convolutions: Network, costs_table: CostTable
) -> None:
    model = CostModel(two_convolutions.graph, two_convolutions.profile, costs_table)
    # Into blocks for the first, out of them for Erf, and so again for the second.
    assert model.floating == pytest.approx({"Conv_a": 124.0, "Erf_b": 18.0, "Conv_y": 113.0})


@pytest.mark.parametrize(("channels", "computed"), [(1, 16), (12, 16), (32, 32)])
def test_float_operators_in_blocks_of_channels_compute_whole_blocks(channels: int, computed: int) -> None:
    net = network("a = Conv (x, v) b = Sigmoid (a) y = Erf (b)", {"v": (channels, 32, 1, 1)}, shape=SHAPE)
    passes = ("Sigmoid:fused:float", "Erf:float", "ReorderOutput:float")
    kernels = dict.fromkeys(passes, ((1.0, 1.0), (1e9, 1e9))) | table(Conv__pointwise__float=5.0).kernels
    found = CostModel(net.graph, net.profile, CostTable(CONDITIONS, kernels)).floating
    assert found["Sigmoid_b"] == pytest.approx(2 * 64 * computed)  # the function, and leaving the blocks
    assert found["Erf_y"] == pytest.approx(64 * channels)


def test_onnxruntime_leaves_blocks_of_one_channel_at_the_output_only(tmp_path: Path) -> None:
    net = network(
        'a = Conv (x, v) b = Resize <mode="linear"> (a, none, s) y = Sigmoid (b)',
        {"v": (1, 32, 1, 1), "none": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)},
        shape=SHAPE,
    )
    save_model(net.model, tmp_path / "net.onnx")
    sample = {"x": np.ones(SHAPE, np.float32)}
    (executed,) = node_times({"net": tmp_path / "net.onnx"}, [sample], seconds=0.0)
    assert [node.op_type for node in executed] == [
        "ReorderInput",
        "Conv",
        "Upsample",
        "Sigmoid",
        "ReorderOutput",
    ]
    passes = ("Resize:linear:float", "Sigmoid:float", "ReorderOutput:float")
    kernels = CostTable(CONDITIONS, dict.fromkeys(passes, ((1.0, 1.0), (1e9, 1e9))))
    found = CostModel(net.graph, net.profile, kernels).floating
    assert (found["Resize_b"], found["Sigmoid_y"]) == pytest.approx((16 * 256, 2 * 16 * 256))


def test_a_plan_has_the_times_of_integer_kernels_and_of_conversions(
    two_convolutions: Network, costs_table: CostTable
) -> None:
    net, plan = two_convolutions, two_convolutions.plan()
    costs = CostModel(net.graph, net.profile, costs_table).costs(plan)
    assert costs.integer == pytest.approx({"Conv_a": 30.0, "Erf_b": 7.0, "Conv_y": 30.0})
    converted = {name for name, kernel in conversions_of(net.graph, plan).items() if kernel}
    assert converted == {"x", "a", "b", "y"}
    # Between the two convolutions the channels stay last.
    assert costs.border == pytest.approx({"x": 19.0, "a": 3.0, "b": 2.0, "y": 20.0})
    assert total_microseconds(costs, net.graph, plan) == pytest.approx(111.0)


def test_what_was_not_measured_counts_as_a_pass_over_its_elements(two_convolutions: Network) -> None:
    only = table(Neg__float=5.0)
    model = CostModel(two_convolutions.graph, two_convolutions.profile, only)
    assert model.floating["Erf_b"] == pytest.approx(5.0)


def test_the_kernel_of_a_convolution_follows_from_its_channels() -> None:
    net = network(
        "a = Conv (x, v) b = Conv <group=32> (a, w) y = Conv (b, u)",
        {"v": POINTWISE, "w": (32, 1, 3, 3), "u": (24, 32, 3, 3)},
        shape=SHAPE,
    )
    floats, integers = works(net), works(net, integer=True)
    assert floats["Conv_a"] == Work("Conv:pointwise", (32, 32, 64))
    assert floats["Conv_b"] == Work("Conv:depthwise", (9, 32, 36))
    assert floats["Conv_y"] == Work("Conv:window", (9, 32, 32, 16))  # 24 channels are filled up
    assert integers["Conv_y"] == Work("Conv:window:unaligned", (3.0, 96, 24, 16))


@pytest.mark.parametrize(
    ("weight", "shape", "kernel", "sizes"),
    [
        ((8, 1, 512, 1), (1, 1, 520, 1), "Conv:window:unaligned", (512.0, 1, 8, 9)),
        ((8, 1, 1, 512), (1, 1, 1, 520), "Conv:window:unaligned", (1.0, 512, 8, 9)),
        ((8, 3, 11, 11), (1, 3, 13, 13), "Conv:window:unaligned", (11.0, 33, 8, 9)),
        ((16, 3, 1, 11, 11), (1, 3, 2, 13, 13), "Conv:window:volume", (121, 3, 16, 18)),
    ],
)
def test_few_channels_are_priced_by_the_rows_of_a_window(
    weight: tuple[int, ...], shape: tuple[int, ...], kernel: str, sizes: tuple[float, ...]
) -> None:
    net = network("y = Conv (x, w)", {"w": weight}, shape=shape)
    assert works(net, integer=True)["Conv_y"] == Work(kernel, sizes)


def test_convolutions_of_three_dimensions_are_no_faster_in_int8() -> None:
    """They were predicted to take 0.32 of float's time and took 2.57."""
    costs = costs_of("onnxruntime-x86")
    assert costs is not None
    integer = costs.microseconds("Conv:window:volume:integer", (121.0, 16.0, 16.0, 2048.0))
    floating = costs.microseconds("Conv:sequence:volume:float", (1936.0, 16.0, 2048.0))
    assert integer is not None
    assert floating is not None
    assert integer > 0.7 * floating


def test_a_product_of_two_activations_is_repeated_for_each_matrix() -> None:
    net = network("y = MatMul (x, x)", {}, shape=(1, 8, 6, 6))
    assert works(net) == {"MatMul_y": Work("MatMul:activations", (6, 6, 6), 8.0)}


def test_silu_and_gelu_are_one_operator_each_in_float() -> None:
    silu = network("s = Sigmoid (x) y = Mul (x, s)", {})
    gelu = network(
        "a = Div (x, r) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)",
        {name: np.float32(value) for name, value in (("r", 2**0.5), ("one", 1.0), ("half", 0.5))},  # type: ignore[misc]
    )
    for net, kernel in ((silu, "Silu"), (gelu, "Gelu")):
        sizes = Sizes(net.graph, shapes_of(net.graph, net.profile))
        fused = {name: kernel for name, (kernel, _) in fused_nodes(net.graph, sizes).items()}
        assert fused.pop("Mul_y") == kernel
        assert set(fused.values()) == {""}


@pytest.mark.parametrize("passes", [1, 12])
def test_what_a_loop_computes_costs_as_often_as_it_is_computed(passes: int) -> None:
    net = network(
        """a = Erf (x)
        y = Loop (n, go, a) <body = step (int64 i, bool k, float[1,8,6,6] f) => (bool l, float[1,8,6,6] o) {
            l = Identity (k) g = Cos (f) o = Sin (g) }>""",
        {"n": np.array(passes), "go": np.array(True)},
    )
    times = table(Erf__float=3.0, Cos__float=5.0, Sin__float=7.0, Neg__float=2.0)
    found = CostModel(net.graph, net.profile, times).floating
    assert found["Erf_a"] == pytest.approx(3.0)
    assert (found["Cos_g"], found["Sin_o"]) == pytest.approx((5.0 * passes, 7.0 * passes))
    (loop,) = (node.name for node in net.graph.nodes if node.op_type == "Loop")
    assert found[loop] == pytest.approx(2.0 + 4.0 * passes)  # as an operator without times, and each start


def test_a_chain_in_a_loop_is_computed_as_often_as_its_nodes() -> None:
    net = network(
        """y = Loop (n, go, x) <body = b (int64 i, bool k, float[1,8,6,6] f) => (bool l, float[1,8,6,6] o) {
            l = Identity (k) e = Cos (f) g = Sigmoid (e) o = Mul (e, g) }>""",
        {"n": np.array(5), "go": np.array(True)},
    )
    facts = model_facts(net.prepared, net.profile, load_recipe("onnxruntime-x86")).contracted
    assert [node.op_type for node in facts.graph.nodes if node.output == "o"] == [CHAIN]
    assert runs_of(facts.graph, net.profile)["o"] == runs_of(net.graph, net.profile)["o"] == 5.0


@pytest.mark.parametrize(
    ("other", "kernel", "run"),
    [
        ((6,), "Add:row", 6.0),
        ((6, 6), "Add:row", 36.0),
        ((8, 1, 1), "Add:channel", 36.0),
        ((8, 6, 1), "Add:channel", 6.0),
        ((8, 1, 6), "Add:channel", 6.0),
        ((1, 1, 6, 1), "Add:channel", 6.0),
    ],
)
def test_a_repeated_operand_is_priced_by_the_elements_that_are_computed_at_once(
    other: tuple[int, ...], kernel: str, run: float
) -> None:
    net = network("y = Add (x, b)", {"b": other}, shape=(1, 8, 6, 6))
    assert works(net) == {"Add_y": Work(kernel, (run, 288.0))}
    assert works(network("y = Add (x, b)", {"b": (1,)})) == {"Add_y": Work("Add:scalar", (288.0,))}


def test_an_operand_whose_declared_rank_is_too_high_is_priced_all_the_same() -> None:
    net = network("y = Add (x, b)", {"b": (1, 6)}, shape=(8, 6))
    wrong = Sizes(net.graph, {"x": (120, 360), "b": (2, 3, 4, 5), "y": (120, 360)})
    assert work_of(net.graph.node("Add_y"), wrong, integer=False).kernel == "Add:channel"


def test_a_table_with_the_elements_alone_has_the_time_of_a_kernel_that_depends_on_more() -> None:
    net = network("y = Add (x, b)", {"b": (6,)})
    for times in ({"Add__row__float": 3.0}, {"Add__float": 3.0}):
        found = CostModel(net.graph, net.profile, table(**times)).floating["Add_y"]
        assert found == pytest.approx(3.0)


def test_a_split_of_channels_copies_runs_of_channels_where_these_come_last() -> None:
    net = network("a, b = Split <axis = 1, num_outputs = 2> (x) y = Add (a, b)", {}, (1, 8, 6, 6), opset=18)
    split = next(work for name, work in works(net, integer=True).items() if name.startswith("Split"))
    assert (split.sizes, split.channels_last) == ((144.0, 288.0), (4.0, 288.0))


@pytest.mark.parametrize(("free", "kernel"), [((), ""), ((1, 8, "height", "width"), ":direct")])
def test_a_resize_of_unknown_sizes_has_the_time_of_the_runtimes_own(
    free: tuple[int | str, ...], kernel: str
) -> None:
    text = 'r = Resize <nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (c, none, s)'
    weights = {"w": (8, 8, 1, 1), "none": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
    net = network(f"c = Conv (x, w) {text} y = Conv (r, w)", weights, dims=free)
    times = table(Resize__nearest__integer=2.0, Resize__nearest__direct__integer=30.0)
    model = CostModel(net.graph, net.profile, times)
    plan = net.plan("onnxruntime-x86", cost_model="off")
    assert model.costs(plan).integer["Resize_r"] == pytest.approx(30.0 if kernel else 2.0)


def test_entries_that_are_picked_from_integers_have_the_time_of_their_kernel() -> None:
    net = network("y = GatherND (x, at)", {"at": np.array([[0, 1], [0, 2]], np.int64)})
    model = CostModel(net.graph, net.profile, table(GatherND__integer=5.0))
    entry = NodePlan(Kind.PASS_THROUGH, implementation=Implementation.INTEGER)
    assert model.integer_time(net.graph.nodes[0], entry) == pytest.approx(5.0)


def test_a_tensor_without_a_profile_has_its_free_sizes_from_the_activation_that_its_node_reads() -> None:
    net = network("a = Conv (x, w) y = Erf (a)", {"w": (64, 8, 3, 3)}, dims=(1, 8, "height", 6))
    tensors = {name: one for name, one in net.profile.tensors.items() if name != "a"}
    net.graph.values["a"].shape = ir.Shape([None, 64, 6, 4])
    assert shapes_of(net.graph, replace(net.profile, tensors=tensors))["a"] == (1, 64, 6, 4)


@pytest.mark.parametrize(
    ("sides", "length", "measured"), [((64, 1), 13, False), ((64, 1), 5, True), ((1, 64), 13, True)]
)
def test_no_table_has_tall_float_windows_on_pictures_that_are_one_element_wide(
    sides: tuple[int, int], length: int, measured: bool
) -> None:
    kernel = tuple(min(length, side) for side in sides)
    pads = [size // 2 for size in kernel] * 2
    text = f"y = Conv <pads = [{','.join(map(str, pads))}]> (x, w)"
    net = network(text, {"w": (16, 16, *kernel)}, (1, 16, *sides))
    table = costs_of("onnxruntime-x86")
    assert table is not None
    guessed = CostModel(net.graph, net.profile, table.guessed).floating
    assert (guessed["Conv_y"] == 0.0) == measured
