"""The small networks are written as the target wants them, and name the kernels that predictions ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.plugins.tune import kernel_times as microbenchmarks
from qprof_onnx.quantizer.plugins.tune.kernel_times import check_machine, kernel_times
from qprof_onnx.quantizer.plugins.tune.networks import Net, all_nets, recurrent_nets
from qprof_onnx.quantizer.targets.loading import load_recipe

TARGET = load_recipe("onnxruntime-x86").target


def convolutions() -> Net:
    net = Net((1, 16, 8, 8))
    return net.conv(16, 16, (1, 1), measure=False).conv(16, 16, (1, 1)).conv(16, 16, (1, 1), measure=False)


def products() -> Net:
    net = Net((4, 32), float_operators=("Neg",))
    return net.add("MatMul", net.weight(32, 32)).add("Neg", measure=False)


def unknown_weights() -> Net:
    net = Net((1, 16, 8, 8), float_operators=("Conv",))
    return net.add("Conv", net.input(16, 16, 3, 3), net.input(16), pads=[1] * 4)


def silu() -> Net:
    net = Net((1, 16, 8, 8), ":blocked").conv(16, 16, (1, 1), measure=False)
    inner = net.output
    net.add("Sigmoid").add("Mul", inner)
    return net.conv(16, 16, (1, 1), measure=False)


@pytest.mark.parametrize(
    ("build", "kernels"),
    [
        (convolutions, {"Conv:pointwise:float", "Conv:pointwise:integer"}),
        (products, {"MatMul:float", "MatMul:to-float"}),
        (unknown_weights, {"Conv:sequence:picture:float"}),
        (silu, {"Silu:float", "Sigmoid:blocked:integer", "Mul:blocked:integer"}),
    ],
)
def test_a_network_gives_the_times_of_its_kernels(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Net], kernels: set[str]
) -> None:
    monkeypatch.setattr(microbenchmarks, "SECONDS", 0.0)
    found = list(kernel_times(build(), TARGET, 1, (0.0, 0.0)))
    assert {kernel for kernel, _, _ in found} == kernels
    assert all(time >= 0.0 for _, _, time in found)


@pytest.mark.slow
def test_networks_are_the_same_in_every_run() -> None:
    first, second = all_nets()[0], all_nets()[0]
    assert first.model().SerializeToString() == second.model().SerializeToString()


def test_a_target_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"does not show the kernels of target glow; measure on"):
        check_machine(load_recipe("glow").target)


def test_products_are_timed_in_float_and_dynamic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(microbenchmarks, "MAX_TURNS", 2)
    times = list(microbenchmarks.product_times((16, 64, 64), TARGET, 1))
    assert [kernel for kernel, _, _ in times] == ["MatMul:float", "MatMul:dynamic"]
    assert all(sizes == (64.0, 64.0, 16.0) and microseconds > 0 for _, sizes, microseconds in times)


def test_recurrent_operators_are_timed_in_float_and_dynamic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbenchmarks, "MAX_TURNS", 2)
    times = list(microbenchmarks.recurrent_times(next(recurrent_nets()), TARGET, 1))
    assert [kernel for kernel, _, _ in times] == ["LSTM:float", "LSTM:dynamic"]
    assert all(microseconds > 0 for _, _, microseconds in times)
