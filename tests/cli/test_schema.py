"""`qprof schema`: what files and `--json` documents hold, and that they hold it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from qprof_onnx.cli.console import document
from qprof_onnx.cli.schemas import DOCUMENTS, schema_of
from qprof_onnx.profiles.base.strict_yaml import parse

from .running import printed, qprof

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
PROFILE = ROOT / "tests" / "data" / "profile-small.yaml"


def check(found: object, name: str) -> None:
    """Hold a document against its schema."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(schema_of(name)).validate(found)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("quantized")
    profile, plan = folder / "p.yaml", folder / "plan.yaml"
    data = ("--data", DIGITS / "calibration", "-o", profile)
    profiling = printed("dump-profile", DIGITS / "model.onnx", *data, "--json")
    files = ("--profile", profile, "-o", folder / "q.onnx", "--save-plan", plan)
    text = printed("quantize", DIGITS / "model.onnx", *files, "--json")
    return {
        "profiling": json.loads(profiling),
        "quantization": json.loads(text),
        "plan": parse(plan.read_text(encoding="utf-8")),
        "folder": folder,
    }


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_can_be_printed(name: str) -> None:
    schema = json.loads(printed("schema", name))
    assert schema["$schema"].startswith("https://json-schema.org/")
    refs = [kind["$ref"] for kind in schema.get("anyOf", [schema])]
    assert {ref.removeprefix("#/$defs/") for ref in refs} <= set(schema["$defs"])


def test_without_a_name_the_names_are_listed() -> None:
    assert [line.split()[0] for line in printed("schema").splitlines()[1:]] == list(DOCUMENTS)


def test_an_unknown_name_suggests_the_nearest() -> None:
    result = qprof("schema", "cofnig")
    assert result.exit_code == 2
    assert "Did you mean 'config'?" in result.stderr


@pytest.mark.parametrize("name", ["profiling", "quantization", "plan"])
def test_what_quantize_and_its_profile_write_keeps_to_the_schema(
    quantized: dict[str, Any], name: str
) -> None:
    assert str(quantized[name]["format"]).startswith(f"qprof-{name}/")
    check(quantized[name], name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("evaluation", "evaluate MODEL OUT --data HELDOUT --labels LABELS --limit 4 --min-sqnr 1"),
        ("evaluation", "evaluate MODEL MODEL --data HELDOUT --limit 2 --no-latency"),
        ("layers", "compare-layers MODEL OUT --data HELDOUT --limit 2 --plan PLAN"),
        ("layers", "compare-layers MODEL OUT --data HELDOUT --limit 2 --worst 3"),
        (
            "tuning",
            "tune MODEL --profile PROFILE --data HELDOUT --labels LABELS --max-drop 50 --objective size",
        ),
        ("drift", "diff PROFILE PROFILE --max-clipping 1 --worst 3"),
        ("drift", "diff PROFILE PROFILE --model MODEL"),
        ("explanation", "show PLAN block.pool.out"),
        ("explanation", "show PLAN block.add.out --model MODEL --profile PROFILE"),
        ("explanation", "show PLAN block.conv1 --model MODEL"),
    ],
)
def test_a_result_about_a_quantized_model_says_its_format_first_and_keeps_to_the_schema(
    quantized: dict[str, Any], name: str, command: str
) -> None:
    paths = {
        "MODEL": DIGITS / "model.onnx",
        "HELDOUT": DIGITS / "heldout",
        "LABELS": DIGITS / "heldout" / "labels.txt",
        "OUT": quantized["folder"] / "q.onnx",
        "PROFILE": quantized["folder"] / "p.yaml",
        "PLAN": quantized["folder"] / "plan.yaml",
    }
    found = json.loads(printed(*(paths.get(word, word) for word in command.split()), "--json"))
    assert next(iter(found.items())) == ("format", f"qprof-{name}/{DOCUMENTS[name].version}")
    check(found, name)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_packaged_target_keeps_to_the_schema(path: Path) -> None:
    check(yaml.safe_load(path.read_text(encoding="utf-8")), "config")


def test_the_schema_of_a_configuration_file_is_shipped_as_it_is_printed() -> None:
    assert (ROOT / "configs" / "config.schema.json").read_text(encoding="utf-8") == printed(
        "schema", "config"
    )


def test_infinities_are_words_in_a_document() -> None:
    @dataclass(frozen=True)
    class Measured:
        sqnr: float

    assert json.loads(document("x", 3, Measured(float("inf")), passed=True)) == {
        "format": "qprof-x/3",
        "sqnr": "inf",
        "passed": True,
    }


def test_what_is_no_record_is_no_document() -> None:
    with pytest.raises(TypeError, match="list is not a record"):
        document("x", 1, [1])


RECIPES = [
    "reader: image",
    "base: imagenet\nsize: 224",
    "reader: image\nresize: [256, 256]\ncrop: 224\nscale: 1/255\nmean: [0.5]\ncolor: bgr\nlayout: nhwc",
    "reader: image\nsize: [192, 256]\nresize: letterbox\nfill: 114\nconstants: {sizes: [640, 640]}",
    "reader: array\nrows: split",
    "reader: text\ntokenizer: tokenizer.json\nfield: [question, answer]\nmax_length: 128\ninputs: {tok: ids}",
    "reader: audio\nrate: 16000\nwindow: 320\nhop: 160\nconstants: {state: zeros, sr: 16000}",
    "reader: table\ncolumns: {x: [a, b], y: c}\nlabel: d",
    "reader: random\nsizes: {tokens: 16}",
]
NO_RECIPES = [
    "reader: video",
    "reader: image\nresise: 256",
    "rows: split",
    "base: imagnet",
    "reader: array\nsize: 3",
    "reader: text\nmax_length: 0",
    "reader: audio\nchannels: left",
    "reader: table\nrows: 0",
    "reader: random\nsizes: {tokens: 0}",
]


@pytest.mark.parametrize("text", RECIPES)
def test_a_recipe_fits_its_schema(text: str) -> None:
    check(yaml.safe_load(text), "preprocess")


@pytest.mark.parametrize("text", NO_RECIPES)
def test_what_is_no_recipe_does_not_fit_its_schema(text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        check(yaml.safe_load(text), "preprocess")


def test_every_key_of_a_recipe_is_described() -> None:
    records = schema_of("preprocess")["$defs"].values()
    assert all(key.get("description") for record in records for key in record["properties"].values())
