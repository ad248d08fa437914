"""`qprof show`: profiles and plans as tables and as JSON."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from qprof_onnx.cli.console import plain_table
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.drawing import ASCII, shape_text, small_histogram
from qprof_onnx.profiles.records.histogram import EqualBins, Histogram
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.quantizer.plan.documents import read_document
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plugins.explanation.commands.show import command

DATA = Path(__file__).parents[3] / "data"
PROFILE, PLAN, GLOW = DATA / "profile-small.yaml", DATA / "plan-small.yaml", DATA / "profile-glow.yaml"


def show(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_profile_is_a_table_in_graph_order() -> None:
    lines = show(PROFILE).output.splitlines()
    assert lines[0] == "small.onnx, 6 tensors, 2 samples"
    header = next(at for at, line in enumerate(lines) if line.startswith("tensor"))
    assert lines[header].split() == ["tensor", "histogram", "type", "shape", "minimum", "maximum", "zeros"]
    assert lines[header + 1].split()[0] == "input"
    assert lines[header + 1].split()[-6:] == ["float", "?x1x8x8", "-1", "2.5", "16.7", "%"]
    names = [line.split()[0] for line in lines[header + 1 : header + 7]]
    assert names == ["input", "conv:0", "7", "glow's", "none", "weighed"]


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cp", PROFILE, tmp_path / "pipe"]):
        assert "6 tensors, 2 samples" in show(tmp_path / "pipe").output


def test_a_glow_profile_is_shown_without_zeros() -> None:
    lines = show(GLOW).output.splitlines()
    (line,) = [line for line in lines if line.startswith("conv:0")]
    assert line.split()[-5:] == ["float", "?", "-1.5", "2.25", "-"]
    assert "from       Glow x.y" in lines


def test_a_plan_is_nodes_by_kind_with_reason_and_tensors_with_parameters() -> None:
    lines = [line.rstrip() for line in show(PLAN).output.splitlines()]
    assert "note: opset raised from 11 to 13" in lines
    assert 'sum    float      no rule for Einsum: it has "many" forms' in lines
    assert "add    quantized" in lines
    assert "x       uint8      0.0123          128" in lines
    assert "w       int8 (2)   0.1 .. 0.25     0              0" in lines


@pytest.mark.parametrize(
    ("globs", "expected"),
    [(["i*"], ["input"]), (["conv:0"], ["conv:0"]), (["7", "n*"], ["7", "none"]), (["*"], 6)],
)
def test_tensors_are_chosen_by_glob(globs: list[str], expected: list[str] | int) -> None:
    lines = show(PROFILE, *globs).output.partition("\ntensor ")[2].partition("\n\n")[0].splitlines()
    names = [line.split()[0] for line in lines[1:]]
    assert (len(names) if isinstance(expected, int) else names) == expected


def test_json_is_for_one_name_of_a_plan() -> None:
    assert "explain one name of a plan" in show(PROFILE, "--json").output


def test_a_chosen_tensor_of_a_plan_is_shown_without_the_nodes() -> None:
    output = show(PLAN, "w*").output
    assert "1 tensors" in output
    assert "kind" not in output


def test_a_glob_that_matches_nothing_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no tensor matches 'imput'; .* Did you mean 'input'\?"):
        show(PROFILE, "imput")


def test_profiles_and_plans_are_told_apart_by_their_format() -> None:
    assert [type(read_document(path)) for path in (PROFILE, PLAN, GLOW)] == [Profile, QuantPlan, Profile]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "a.yaml",
            b"a: 1\n",
            r"a\.yaml: key 'format' is missing; give a profile of 'qprof dump-profile' or of",
        ),
        ("a.yaml", b"format: gguf\n", r"a\.yaml: format 'gguf' is unknown; give a profile"),
        ("a.bin", b"\x08\xff", r"a\.bin: not UTF-8 text"),
    ],
)
def test_anything_else_is_an_error_with_advice(tmp_path: Path, name: str, text: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ConfigError, match=sentence):
        show(tmp_path / name)


# Small histograms


def test_a_small_histogram_shows_where_the_mass_is() -> None:
    values = np.concatenate([np.full(1000, -0.9), np.full(1, 0.95), [-1.0, 1.0]]).astype(np.float32)
    assert small_histogram(Histogram.of(values), -1.0, 1.0, cells=4) == "█  ▂"


def test_equal_heights_for_equal_counts() -> None:
    assert small_histogram(EqualBins(0.0, 1.0, np.full(2000, 3.0)), 0.0, 1.0) == "█" * 16


def test_one_bin_is_spread_over_the_range() -> None:
    assert small_histogram(EqualBins(0.0, 1.0, np.array([5.0])), 0.0, 1.0, cells=5) == "█████"


def test_a_constant_tensor_is_one_full_cell() -> None:
    assert small_histogram(Histogram.of(np.full(9, 0.3)), 0.3, 0.3, cells=4) == "█   "


def test_no_elements_are_blank() -> None:
    assert small_histogram(Histogram.empty(), 0.0, 0.0, cells=4) == "    "


def test_another_ramp_can_be_drawn_with() -> None:
    assert set(small_histogram(Histogram.of(np.arange(100.0)), 0.0, 99.0, ramp=ASCII)) <= set(ASCII)


def test_a_full_cell_is_never_blank() -> None:
    counts = np.zeros(2000)
    counts[0], counts[1000] = 1e15, 1
    assert small_histogram(EqualBins(0.0, 1.0, counts), 0.0, 1.0, cells=2)[0] == "█"
    counts[0] = 1e9
    assert small_histogram(EqualBins(0.0, 1.0, counts), 0.0, 1.0, cells=2) == "█▁"


def test_a_plain_table_is_aligned_and_has_no_trailing_blanks() -> None:
    assert plain_table(["a", "bb"], [["xyz", "1"], ["", "22"]], right=("bb",)) == "a    bb\nxyz   1\n     22"


def test_shapes_are_short() -> None:
    assert [shape_text(s) for s in (None, (), (None, 3), (2,))] == ["?", "scalar", "?x3", "2"]
