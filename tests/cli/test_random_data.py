"""--data random:N: a smoke test that says what it is, and that no gate takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.profiles.records.store import dumps, load_profile, loads

from .running import qprof

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "model.onnx"
SAID = "is of random values"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a profile of random values, and the model that was quantized with it."""
    folder = tmp_path_factory.mktemp("random")
    profiled = qprof("dump-profile", MODEL, "--data", "random:4", "-o", folder / "p.yaml")
    assert profiled.exit_code == 0, profiled.output
    assert SAID in profiled.output
    quantized = qprof("quantize", MODEL, "--profile", folder / "p.yaml", "-o", folder / "q.onnx")
    assert quantized.exit_code == 0, quantized.output
    assert SAID in quantized.output
    return folder


def test_the_profile_of_random_values_says_so(made: Path, profile: Path) -> None:
    random = load_profile(made / "p.yaml")
    assert random.data.random
    assert loads(dumps(random)) == random
    assert SAID in qprof("show", made / "p.yaml").output
    assert not load_profile(profile).data.random
    assert "random: true" not in profile.read_text()
    assert random.merged(load_profile(profile)).data.random


def test_a_gate_on_random_values_is_refused(made: Path) -> None:
    pair = ("evaluate", MODEL, made / "q.onnx", "--data", "random:2", "--no-latency")
    assert qprof(*pair).exit_code == 0
    refused = qprof(*pair, "--min-sqnr", "10")
    assert refused.exit_code == 2
    assert "random:2: random values do not show quality; give samples for a gate" in refused.output


def test_a_gate_on_a_profile_of_random_values_is_refused(made: Path, profile: Path) -> None:
    assert qprof("diff", made / "p.yaml", profile).exit_code == 0
    refused = qprof("diff", profile, made / "p.yaml", "--max-clipping", "0.1")
    assert refused.exit_code == 2
    assert "p.yaml: is a profile of random values, and a gate needs one of samples" in refused.output


def test_tuning_with_random_values_is_refused(made: Path, profile: Path, tmp_path: Path) -> None:
    heldout = MODEL.parent / "heldout"
    for source, of in (("random:4", profile), (heldout, made / "p.yaml")):
        refused = qprof("tune", MODEL, "--profile", of, "--data", source, "-o", tmp_path / "t.onnx")
        assert refused.exit_code == 2
        assert "random values" in refused.output
