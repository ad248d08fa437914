"""The records that functions take, and the loose keywords that become their fields."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.options import options_of
from qprof_onnx.quantizer.api.keywords import recipe_of, with_keywords
from qprof_onnx.quantizer.evaluation.options import TOLD, LatencySettings

ROOT = Path(__file__).parents[3]
RECORDS = (
    *(qprof.Judge, qprof.QuantizeOptions, qprof.TuneOptions, qprof.DriftLimits),
    *(qprof.RunSettings, qprof.Gate),
)


# ------------------------------------------------------------------------------------------ loose keywords


def test_keywords_are_the_fields_of_the_record() -> None:
    gate = qprof.Gate(min_sqnr=30.0)
    judge = with_keywords("evaluate", qprof.Judge(limit=4), {"gate": gate, "threads": 2})
    assert judge == qprof.Judge(limit=4, gate=gate, threads=2)


def test_for_latency_true_stands_for_the_default_and_false_for_none() -> None:
    assert with_keywords("evaluate", qprof.Judge(), {"latency": False}).latency is None
    assert (
        with_keywords("evaluate", qprof.Judge(latency=None), {"latency": True}).latency == LatencySettings()
    )
    assert with_keywords("quantize", qprof.QuantizeOptions(), {"latency": True}).latency == TOLD


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: qprof.evaluate(m, m, [], gate=qprof.Gate(max_drop=-1.0)), "max_drop: -1 is below 0"),
        (
            lambda m: qprof.profile(m, m.parent / "heldout", channels={"image": 4}),
            "'image' has 4 axes, and 4",
        ),
        (lambda m: qprof.evaluate(m, m, [], lables=[1]), "evaluate: .*'lables'.* Did you mean 'labels'?"),
        (lambda m: qprof.compare_layers(m, m, [], metric="f1"), "compare_layers: .* no keyword 'metric'"),
        (lambda m: qprof.profile(m, [], thread=2), "profile: .*'thread'.* Did you mean 'threads'?"),
        (lambda m: qprof.tune(m, m, [], objectve="size"), "tune: .* Did you mean 'objective'?"),
        (lambda m: qprof.diff(m, m, max_cliping=1.0), "diff: .* Did you mean 'max_clipping'?"),
        (lambda m: qprof.diff(m, m, calibratr="kl"), "diff: .* Did you mean 'calibrator'?"),
        (lambda m: qprof.verify(m, m, slck={}), "verify: .* Did you mean 'slack'?"),
    ],
)
def test_a_keyword_that_is_not_known_is_told_with_the_nearest(call: Any, said: str, path: Path) -> None:
    with pytest.raises(qprof.ConfigError, match=said):
        call(path)


# ------------------------------------------------------------------------------------------ the settings


def test_of_a_record_of_settings_those_hold_that_are_not_the_default() -> None:
    recipe = recipe_of(qprof.QuantConfig(target="glow", calibrator="kl"), {})
    assert recipe is not None
    assert recipe == recipe_of(None, {"target": "glow", "calibrator": "kl"})
    assert recipe.config.activation_type != qprof.QuantConfig().activation_type  # Glow's own


def test_a_file_of_settings_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("target: onnxruntime-arm\nsettings: {calibrator: kl}\n", encoding="utf-8")
    recipe = recipe_of(file, {"schema": "symmetric"})
    assert recipe is not None
    found = recipe.config.target, recipe.config.calibrator, recipe.config.schema
    assert found == ("onnxruntime-arm", "kl", "symmetric")
    with pytest.raises(qprof.ConfigError, match="a configuration file names its target"):
        recipe_of(str(file), {"target": "glow"})


def test_a_setting_that_is_given_twice_is_refused() -> None:
    with pytest.raises(qprof.ConfigError, match="QuantConfig: means calibrator kl, but calibrator mse was"):
        recipe_of(qprof.QuantConfig(calibrator="kl"), {"calibrator": "mse"})


# ------------------------------------------------------------------------------------------ the records


@pytest.mark.parametrize("record", RECORDS)
def test_every_option_is_described(record: type) -> None:
    """In its field, for help and pages, or in the docstring of a record where no command takes it."""
    described = {name for name, known in options_of(record).items() if known.description}
    texts = "".join(kind.__doc__ or "" for kind in record.__mro__)
    assert not [f.name for f in fields(record) if f.name not in described and f.name not in texts]  # type: ignore[arg-type]


MISUSE = (
    ("q.quantise", 'has no attribute "quantise"; maybe "quantize"?'),
    ("reveal_type(q.load_profile)", "Profile"),
    ("q.QuantConfig(block_size='32')", 'Argument "block_size"'),
    ("q.QuantConfig(schema='symetric')", 'Argument "schema"'),
    ("q.Judge(lables=[1])", 'Unexpected keyword argument "lables"'),
    ("q.TuneOptions(objective='speed')", 'Argument "objective"'),
    ("q.evaluate(3, 4, [])", 'Argument 1 to "evaluate"'),
    ("q.quantize('m.onnx', options=q.Judge())", 'Argument "options" to "quantize" has incompatible type'),
    ("reveal_type(q.quantize('m.onnx').model)", 'Revealed type is "onnx_ir._core.Model"'),
)
"""Lines that misuse a record or function, and the complaint of a type checker."""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the lines that a type checker prints about a script of all misuses."""
    script = tmp_path_factory.mktemp("typed") / "script.py"
    script.write_text(
        "\n".join(["import qprof_onnx as q", *(line for line, _ in MISUSE)]) + "\n", encoding="utf-8"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("line", "said"), MISUSE)
def test_a_type_checker_finds_what_is_wrong_in_a_record(line: str, said: str, complaints: list[str]) -> None:
    place = f"script.py:{2 + MISUSE.index((line, said))}: "
    assert any(place in complaint and said in complaint for complaint in complaints)
