"""Models of several files: joined, profiled once, and split again into quantized files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper
from qprof_onnx.profiles.base.errors import ConfigError, ModelError, PlanError
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.plugins.exchange.join import Joined, join
from qprof_onnx.quantizer.plugins.exchange.parts import read_parts
from qprof_onnx.quantizer.plugins.exchange.split import split
from qprof_onnx.quantizer.targets.loading import load_recipe

from ....cli.running import qprof as invoked

ENCODER = """<ir_version: 8, opset_import: ["": 17]>
net (float[N, 4, 6, 6] x) => (float[N, 4, 6, 6] h, float[N, 4] pooled)
    <float[4, 4, 3, 3] w, float[4, 4, 3, 3] v> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu(a)
    h = Conv <pads = [1, 1, 1, 1]> (r, v)
    p = GlobalAveragePool(h)
    pooled = Flatten(p)
}"""
DECODER = """<ir_version: 8, opset_import: ["": 17]>
net (float[N, 4, 6, 6] memory, float[N, 4, 6, 6] x) => (float[N, 5] y) <float[4, 4, 3, 3] w, float[4, 5] v> {
    r = Relu(memory)
    a = Conv <pads = [1, 1, 1, 1]> (r, w)
    s = Add(a, x)
    p = GlobalAveragePool(s)
    q = Flatten(p)
    y = MatMul(q, v)
}"""
CONNECTED = ("decoder:memory=encoder:h", "decoder:x=x")
FORMS = ("qdq", "qoperator", "integer", "primitives", "regions")

Arrays = Mapping[str, Any]


def save(folder: Path, name: str, text: str) -> Path:
    """Write a model whose declared values are weights."""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(len(name))
    for info in model.graph.value_info:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        weight = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), info.name))
    del model.graph.value_info[:]
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def joined(folder: Path, encoder: str = ENCODER, decoder: str = DECODER, connect: Any = CONNECTED) -> Joined:
    files = [save(folder, "encoder", encoder), save(folder, "decoder", decoder)]
    return join(files, folder / "whole.onnx", connect=connect)


def samples(count: int = 8) -> list[Arrays]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((2, 4, 6, 6), dtype=np.float32)} for _ in range(count)]


def outputs(file: Path, sample: Arrays) -> dict[str, Any]:
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    inputs = {value.name: sample[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    joined(folder)
    return folder / "whole.onnx"


@pytest.fixture(scope="module")
def profile(whole: Path) -> Profile:
    return profile_model(whole, samples())


def test_a_joined_model_computes_what_its_parts_do_one_after_the_other(whole: Path) -> None:
    sample = samples(1)[0]
    first = outputs(whole.with_name("encoder.onnx"), sample)
    second = outputs(whole.with_name("decoder.onnx"), {"memory": first["h"], **sample})
    found = outputs(whole, sample)
    assert list(found) == ["decoder:y", "encoder:pooled", "encoder:h"]
    np.testing.assert_array_equal(found["encoder:h"], first["h"])
    np.testing.assert_allclose(found["decoder:y"], second["y"], rtol=1e-5, atol=1e-6)  # other fusions


def test_what_was_joined_is_told(tmp_path: Path) -> None:
    found = joined(tmp_path)
    assert found.inputs == {"x": ("encoder:x", "decoder:x")}
    assert found.connections == {"decoder:memory": "encoder:h"}


def test_names_in_a_plan_are_those_of_the_part_with_its_name_in_front(profile: Profile) -> None:
    assert {"x", "encoder:a", "encoder:h", "decoder:a"} <= set(profile.tensors)


@pytest.mark.parametrize("form", FORMS)
def test_quantized_parts_one_after_the_other_are_the_quantized_whole(
    form: str, whole: Path, profile: Profile, tmp_path: Path
) -> None:
    recipe = load_recipe(None, {"form": form, "cost_model": "off"})
    result = write_quantized(whole, profile, tmp_path / "whole.int8.onnx", recipe=recipe)
    files = [part.file for part in split(whole, result.plan, tmp_path / "parts")]
    for sample in samples(3):
        first = outputs(files[0], sample)
        second = outputs(files[1], {"memory": first["h"], **sample})
        expected = outputs(tmp_path / "whole.int8.onnx", sample)
        np.testing.assert_array_equal(first["h"], expected["encoder:h"])
        np.testing.assert_array_equal(first["pooled"], expected["encoder:pooled"])
        np.testing.assert_array_equal(second["y"], expected["decoder:y"])


def test_a_quantized_part_has_the_inputs_outputs_names_and_metadata_of_its_file(
    tmp_path: Path,
) -> None:
    joined(tmp_path)
    model = onnx.load(tmp_path / "encoder.onnx")
    model.metadata_props.add(key="classes", value="cat,dog")
    onnx.save(model, tmp_path / "encoder.onnx")
    join([tmp_path / "encoder.onnx", tmp_path / "decoder.onnx"], tmp_path / "whole.onnx", connect=CONNECTED)
    result = write_quantized(
        tmp_path / "whole.onnx", profile_model(tmp_path / "whole.onnx", samples()), tmp_path / "w.onnx"
    )
    split(tmp_path / "whole.onnx", result.plan, tmp_path)
    part = load_model(tmp_path / "encoder.int8.onnx")
    assert [(v.name, str(v.shape)) for v in part.graph.inputs] == [("x", "[N,4,6,6]")]
    assert [(v.name, str(v.shape)) for v in part.graph.outputs] == [("h", "[N,4,6,6]"), ("pooled", "[N,4]")]
    assert part.metadata_props["classes"] == "cat,dog"
    assert not [node.name for node in part.graph if "encoder:" in str(node.name)]


def test_symbols_of_one_name_stay_those_of_their_part(whole: Path) -> None:
    graph = load_model(whole).graph
    assert str(graph.outputs[0].shape) == "[decoder:N,5]"
    assert str(graph.inputs[0].shape) == "[encoder:N,4,6,6]"


IMAGE = "float[N, 4, 6, 6]"
PAIRS = {
    "transposes that would cancel": (
        *("float[N, 6, 6, 4] k", "h = Conv<pads=[1,1,1,1]>(x, w)  k = Transpose<perm=[0,2,3,1]>(h)"),
        "t = Transpose<perm=[0,3,1,2]>(k)  y = Conv<pads=[1,1,1,1]>(t, w)",
    ),
    "halves of one activation function": (
        *(f"{IMAGE} k, {IMAGE} h", "h = Conv<pads=[1,1,1,1]>(x, w)  k = Sigmoid(h)"),
        "u = Mul(h, k)  y = Conv<pads=[1,1,1,1]>(u, w)",
    ),
    "an input handed on": (
        *(f"{IMAGE} k, {IMAGE} h", "h = Conv<pads=[1,1,1,1]>(x, w)  k = Identity(x)"),
        "y = Add(h, k)",
    ),
    "equal weights": (
        *(f"{IMAGE} k", "k = Conv<pads=[1,1,1,1]>(x, w)"),
        "y = Conv<pads=[1,1,1,1]>(k, w)",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_no_step_reaches_over_the_end_of_a_part(name: str, tmp_path: Path) -> None:
    between, first, second = PAIRS[name]
    head, weights = '<ir_version: 8, opset_import: ["": 17]> net ', "<float[4, 4, 3, 3] w>"
    encoder = f"{head}({IMAGE} x) => ({between}) {weights} {{ {first} }}"
    joined(tmp_path, encoder, f"{head}({between}) => ({IMAGE} y) {weights} {{ {second} }}", ())
    whole, quantized = tmp_path / "whole.onnx", tmp_path / "whole.int8.onnx"
    recipe = load_recipe(None, {"cost_model": "off"})
    result = write_quantized(whole, profile_model(whole, samples()), quantized, recipe=recipe)
    files = [part.file for part in split(whole, result.plan, tmp_path)]
    sample = samples(1)[0]
    found = outputs(files[1], outputs(files[0], sample))
    np.testing.assert_array_equal(found["y"], outputs(quantized, sample)["decoder:y"])


def test_a_subgraph_of_a_part_is_renamed_and_split_with_it(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> net '
    encoder = f"{head}({IMAGE} x) => ({IMAGE} h) <float[4, 4, 3, 3] w> {{ h = Conv<pads=[1,1,1,1]>(x, w) }}"
    branches = (
        f"then_branch = t () => ({IMAGE} z) {{ z = Conv<pads=[1,1,1,1]>(a, w) }}, "
        f"else_branch = e () => ({IMAGE} z) {{ z = Relu(h) }}"
    )
    decoder = (
        f"{head}({IMAGE} h, bool c) => ({IMAGE} y) <float[4, 4, 3, 3] w> "
        f"{{ a = Conv<pads=[1,1,1,1]>(h, w) y = If(c) <{branches}> }}"
    )
    joined(tmp_path, encoder, decoder, ())
    both = [{**sample, "c": np.array(number % 2 > 0)} for number, sample in enumerate(samples())]
    whole, quantized = tmp_path / "whole.onnx", tmp_path / "whole.int8.onnx"
    result = write_quantized(whole, profile_model(whole, both), quantized)
    files = [part.file for part in split(whole, result.plan, tmp_path)]
    for sample in both[:2]:
        found = outputs(files[1], {**sample, **outputs(files[0], sample)})
        np.testing.assert_array_equal(found["y"], outputs(quantized, sample)["decoder:y"])


@pytest.mark.parametrize(
    ("connect", "message"),
    [
        (("decoder:memory",), r"connect 'decoder:memory': not of the form PART:INPUT=PART:OUTPUT"),
        (("decoder:memry=encoder:h",), r"no input of decoder 'memry'; use one of memory, x.*memory"),
        (("decoder:memory=encoder:g",), r"no output of encoder 'g'; use one of h, pooled"),
        (("middle:x=encoder:h",), r"no part 'middle'; use one of encoder, decoder"),
    ],
)
def test_a_connection_that_cannot_be_is_refused(
    connect: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        joined(tmp_path, connect=connect)
    assert not (tmp_path / "whole.onnx").exists()


def test_parts_without_a_name_in_common_are_refused_with_all_names(tmp_path: Path) -> None:
    names = r"encoder: is not connected.* its inputs are x, the outputs of the others decoder:y: .* connect="
    with pytest.raises(ConfigError, match=names):
        joined(tmp_path, connect=())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "4, 6, 6] memory",
            "4, 6, 9] memory",
            r"decoder:memory: is float Nx4x6x9, and encoder:h.* is float Nx4x6x6;",
        ),
        ("4, 6, 6] memory", "4, 6] memory", r"decoder:memory: is float Nx4x6, and encoder:h"),
        (
            "float[N, 4, 6, 6] x",
            "float16[N, 4, 6, 6] x",
            r"decoder:x: is float16 Nx4x6x6, and encoder:x.* is float Nx4x6x6;",
        ),
    ],
)
def test_parts_whose_types_or_shapes_do_not_go_together_are_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    body = "{ z = Cast <to = 1> (x)  r = Relu(memory)  y = Flatten(z) }"
    decoder = DECODER[: DECODER.index("<float[4, 4, 3")] + body
    with pytest.raises(ModelError, match=message):
        joined(tmp_path, decoder=decoder.replace(old, new))


def test_parts_of_two_opsets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="part decoder: is of opset 14, and part encoder of 17; export"):
        joined(tmp_path, decoder=DECODER.replace('["": 17]', '["": 14]'))


def test_parts_that_read_each_other_are_refused(tmp_path: Path) -> None:
    encoder = ENCODER.replace("6] x)", "6] x, float[N, 5] y)").replace(
        "a = Conv", "unused = Relu(y)\n a = Conv"
    )
    with pytest.raises(ConfigError, match=r"each reads an output of the other.* connect='encoder:y=NAME'"):
        joined(tmp_path, encoder)


def test_an_input_of_the_whole_can_be_given_another_name(tmp_path: Path) -> None:
    found = joined(tmp_path, connect=("decoder:memory=encoder:h", "decoder:x=residual"))
    assert found.inputs == {"x": ("encoder:x",), "residual": ("decoder:x",)}


def test_a_model_that_was_not_joined_cannot_be_split(tmp_path: Path) -> None:
    file = save(tmp_path, "encoder", ENCODER)
    result = write_quantized(file, profile_model(file, samples()), tmp_path / "q.onnx")
    with pytest.raises(ModelError, match=r"encoder\.onnx: was not joined of parts by qprof join"):
        split(file, result.plan, tmp_path / "parts")


def test_the_plan_of_another_model_is_not_split(whole: Path, tmp_path: Path) -> None:
    file = save(tmp_path, "encoder", ENCODER)
    result = write_quantized(file, profile_model(file, samples()), tmp_path / "q.onnx")
    with pytest.raises(PlanError, match="made for another model"):
        split(whole, result.plan, tmp_path)


def test_parts_appear_together_or_not_at_all(whole: Path, profile: Profile, tmp_path: Path) -> None:
    result = write_quantized(whole, profile, tmp_path / "q.onnx")
    (tmp_path / "decoder.int8.onnx").mkdir()
    with pytest.raises(ConfigError, match=r"decoder\.int8\.onnx"):
        split(whole, result.plan, tmp_path)
    assert not (tmp_path / "encoder.int8.onnx").exists()


def test_the_commands_join_and_export(tmp_path: Path) -> None:
    files = [save(tmp_path, "encoder", ENCODER), save(tmp_path, "decoder", DECODER)]
    whole, plan = tmp_path / "whole.onnx", tmp_path / "plan.yaml"
    words = ["join", *map(str, files), "--connect", CONNECTED[0], "--connect", CONNECTED[1], "-o", str(whole)]
    found = invoked(*words)
    assert "connected  encoder:h -> decoder:memory" in found.stdout
    write_quantized(whole, profile_model(whole, samples()), tmp_path / "q.onnx", save_plan=plan)
    words = ["export", str(plan), "--model", str(whole)]
    found = invoked(*words, "--parts", str(tmp_path / "int8"))
    assert found.stdout.startswith(f"{tmp_path / 'int8' / 'encoder.int8.onnx'}: ")
    assert (tmp_path / "int8" / "decoder.int8.onnx").is_file()


def test_the_functions_join_and_split_write_what_the_commands_write(
    whole: Path, profile: Profile, tmp_path: Path
) -> None:
    files = [whole.with_name("encoder.onnx"), whole.with_name("decoder.onnx")]
    found = qprof.join(iter(files), tmp_path / "whole.onnx", connect=CONNECTED)
    assert found.outputs == ("decoder:y", "encoder:pooled", "encoder:h")
    assert (tmp_path / "whole.onnx").read_bytes() == whole.read_bytes()
    plan = qprof.quantize(whole, profile).plan
    split(whole, plan, tmp_path / "command")
    for part in qprof.split(onnx.load(whole), plan, tmp_path / "function"):
        assert part.size == part.file.stat().st_size
        assert part.file.read_bytes() == (tmp_path / "command" / part.file.name).read_bytes()


def test_a_record_whose_part_names_are_no_file_names_is_refused_and_nothing_is_written(
    whole: Path, profile: Profile, tmp_path: Path
) -> None:
    plan = write_quantized(whole, profile, tmp_path / "whole.int8.onnx").plan
    model, damaged = onnx.load(whole), tmp_path / "damaged.onnx"
    (entry,) = (entry for entry in model.metadata_props if entry.key == "qprof.parts")
    record = json.loads(entry.value)
    for name in ("", ".", "..", "../up", "/tmp/up", "a/b", "a\\b", "a:b", "a\nb", "decoder"):
        record[0]["name"] = name
        entry.value = json.dumps(record)
        onnx.save(model, damaged)
        before = set(tmp_path.rglob("*"))
        with pytest.raises(ModelError, match="the record of its parts is damaged"):
            split(damaged, plan, tmp_path / "new" / "parts")
        assert set(tmp_path.rglob("*")) == before


def test_a_size_beyond_all_integers_in_a_record_is_refused(whole: Path) -> None:
    model = load_model(whole)
    record = json.loads(model.metadata_props["qprof.parts"])
    record[0]["inputs"]["x"]["shape"] = [10**30]
    model.metadata_props["qprof.parts"] = json.dumps(record)
    with pytest.raises(ModelError, match="the record of its parts is damaged"):
        read_parts(model, "whole.onnx")


def test_a_record_with_an_input_without_a_name_is_refused(whole: Path) -> None:
    model = load_model(whole)
    record = json.loads(model.metadata_props["qprof.parts"])
    record[0]["inputs"][""] = {"name": "x", "shape": None}
    model.metadata_props["qprof.parts"] = json.dumps(record)
    with pytest.raises(ModelError, match="has no name"):
        read_parts(model, "whole.onnx")


def test_the_folder_of_the_parts_is_gone_again_when_splitting_fails(
    whole: Path, profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_quantized(whole, profile, tmp_path / "whole.int8.onnx").plan

    def full(*arguments: object) -> None:
        raise ConfigError("no space left")

    monkeypatch.setattr("qprof_onnx.quantizer.plugins.exchange.split._written", full)
    with pytest.raises(ConfigError, match="no space left"):
        split(whole, plan, tmp_path / "new" / "parts")
    assert not (tmp_path / "new").exists()


def test_a_part_whose_file_has_control_characters_in_its_name_is_refused(tmp_path: Path) -> None:
    files = [save(tmp_path, "encoder", ENCODER), save(tmp_path, "deco\nder", DECODER)]
    with pytest.raises(ConfigError, match="cannot be printed"):
        join(files, tmp_path / "whole.onnx")
