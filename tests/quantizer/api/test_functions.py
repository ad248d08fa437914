"""The public functions on the digits example: objects in and out, the same bytes as with paths."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def same_file(a: Path, b: Path) -> bool:
    return a.read_bytes() == b.read_bytes()


def top1_of(labels: Any) -> Callable[..., Any]:
    def top1(outputs: Any, indices: Any) -> list[float]:
        return [
            100.0 * float((out["logits"].argmax(1) == labels[50 * i : 50 * i + 50]).mean())
            for out, i in zip(outputs, indices, strict=True)
        ]

    return top1


# ----------------------------------------------------------------------------------------------- what goes in


@pytest.mark.parametrize("kind", [Path, str, onnx.load, ir.load])
def test_a_model_may_be_a_path_or_an_object_and_gives_the_same_bytes(
    kind: Callable[[Path], Any], path: Path, loader: Any, result: Any, tmp_path: Path
) -> None:
    model = kind(path)
    profile = qprof.profile(model, loader)
    made = qprof.quantize(model, profile, tmp_path / "made.onnx")
    result.save(tmp_path / "expected.onnx")
    assert same_file(tmp_path / "made.onnx", tmp_path / "expected.onnx")
    assert made.plan == result.plan


def test_an_object_is_only_read(proto: onnx.ModelProto, loader: Any, heldout: Any) -> None:
    model = ir.from_proto(proto)
    copies = [onnx.ModelProto(), ir.to_proto(model)]
    copies[0].CopyFrom(proto)
    for given in (proto, model):
        made = qprof.quantize(given, qprof.profile(given, loader))
        qprof.evaluate(given, made, heldout, latency=False)
        qprof.instrument(given)
    assert [proto, ir.to_proto(model)] == copies


def test_a_loader_that_refills_its_buffer_gives_the_profile_of_the_folder(
    path: Path, loader: Any, profile: qprof.Profile
) -> None:
    assert qprof.profile(path, loader, threads=4) == profile
    assert qprof.profile(path, loader, transform=lambda batch: {"image": batch[0]}) == profile
    assert qprof.profile(path, loader.batches) == profile
    assert qprof.profile(path, iter(loader)) == profile


def test_a_generator_that_the_profile_has_read_is_refused_by_evaluate(
    path: Path, result: Any, heldout: Any
) -> None:
    samples = iter(heldout)
    qprof.profile(path, samples)
    with pytest.raises(qprof.DataError, match="was already read"):
        qprof.evaluate(path, result, samples, latency=False)


def test_objects_cannot_be_shared_by_the_workers_of_a_cluster(path: Path, loader: Any) -> None:
    with pytest.raises(qprof.ConfigError, match="open the samples themselves"):
        qprof.profile(path, loader, scheduler="tcp://127.0.0.1:1")


@pytest.mark.parametrize("form", ["object", "file"])
def test_profiles_and_plans_may_be_files_or_objects(
    form: str, path: Path, profile: Any, result: Any, tmp_path: Path
) -> None:
    profile.save(tmp_path / "profile.yaml")
    result.plan.save(tmp_path / "plan.yaml")
    given = profile if form == "object" else tmp_path / "profile.yaml"
    plan = result.plan if form == "object" else tmp_path / "plan.yaml"
    assert qprof.quantize(path, given).plan == result.plan
    assert qprof.quantize(path, plan=plan).plan == result.plan
    assert repr(qprof.explain(plan, "logits", path, given)).startswith("<TensorExplanation: logits")
    assert qprof.diff(given, given).tensors
    assert qprof.load_plan(tmp_path / "plan.yaml") == result.plan


def test_merge_takes_objects_and_files(path: Path, loader: Any, profile: Any, tmp_path: Path) -> None:
    first = qprof.profile(path, loader.batches[:1])
    first.save(tmp_path / "first.yaml")
    rest = qprof.profile(path, loader.batches[1:])
    assert qprof.merge([tmp_path / "first.yaml", rest], tmp_path / "all.yaml") == profile
    assert qprof.load_profile(tmp_path / "all.yaml") == profile


def test_labels_may_be_a_file_or_integers(path: Path, result: Any, heldout: Any, labels: Any) -> None:
    found = [
        qprof.evaluate(path, result, heldout, labels=given, latency=False).score
        for given in (labels, list(labels), DIGITS / "heldout" / "labels.txt")
    ]
    assert found[0] == found[1] == found[2]
    with pytest.raises(qprof.DataError, match="labels: are of type float64; give one integer for each row"):
        qprof.evaluate(path, result, heldout, labels=[0.5])  # type: ignore[list-item]


# --------------------------------------------------------------------------------------------- what comes out


def test_quantize_writes_only_where_it_is_told_to(path: Path, profile: Any, tmp_path: Path) -> None:
    made = qprof.quantize(path, profile, tmp_path / "a.onnx")
    assert made.model_path == tmp_path / "a.onnx"
    only = qprof.quantize(path, profile)
    assert only.model_path is None
    assert isinstance(only.model, ir.Model)
    only.save(tmp_path / "b.onnx")
    assert same_file(tmp_path / "a.onnx", tmp_path / "b.onnx")


def test_a_metric_scores_both_models(path: Path, result: Any, heldout: Any, labels: Any) -> None:
    found = qprof.evaluate(path, result, heldout, metric=top1_of(labels), latency=False)
    by_labels = qprof.evaluate(path, result, heldout, labels=labels, latency=False)
    assert (found.metric, by_labels.metric) == ("top1", "accuracy")
    assert found.score is not None
    assert by_labels.score is not None
    assert found.score.float_score == pytest.approx(by_labels.score.float_score, abs=1e-9)  # means of means
    assert repr(found).index("top1 9") < repr(found).index(" dB")
    assert by_labels.to_markdown().splitlines()[3].startswith("* accuracy: 9")
    with pytest.raises(qprof.ConfigError, match="a metric of yours reads its own"):
        qprof.evaluate(path, result, heldout, metric=top1_of(labels), labels=labels, latency=False)


def test_compare_layers_takes_the_plan_of_a_result(path: Path, result: Any, heldout: Any) -> None:
    found = qprof.compare_layers(path, result, heldout, limit=1)
    assert {layer.kind for layer in found.layers} >= {"quantized", "pass-through"}


def test_tune_gives_plan_and_model(
    proto: Any, profile: Any, heldout: Any, labels: Any, tmp_path: Path
) -> None:
    found = qprof.tune(
        proto,
        profile,
        heldout,
        tmp_path / "tuned.onnx",
        objective="size",
        metric=top1_of(labels),
        calibrator="minmax",
    )
    assert found.target_met
    assert found.plan is not None
    assert qprof.evaluate(proto, found, heldout, latency=False).outputs
    found.save(tmp_path / "again.onnx")
    assert same_file(tmp_path / "tuned.onnx", tmp_path / "again.onnx")


def test_a_tuning_that_finds_nothing_has_no_model(proto: Any, profile: Any, heldout: Any) -> None:
    first: dict[int, Any] = {}

    def the_same_bits(outputs: Any, indices: Any) -> list[float]:
        pairs = zip(indices, outputs, strict=True)
        return [100.0 * np.array_equal(first.setdefault(i, out["logits"]), out["logits"]) for i, out in pairs]

    found = qprof.tune(proto, profile, heldout, metric=the_same_bits, budget=1e-9, objective="size")
    assert found.quantized is None
    for call in (lambda: found.save("none.onnx"), lambda: qprof.evaluate(proto, found, heldout)):
        with pytest.raises(qprof.ConfigError, match="no plan met"):
            call()


def test_diff_takes_a_model_and_limits(path: Path, proto: Any, heldout: Any, profile: qprof.Profile) -> None:
    found = qprof.diff(profile, qprof.profile(path, heldout), model=proto, max_js_distance=0.001)
    assert found.model == "digits.onnx"
    assert not found.passed


# -------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"calibratr": "mse"}, "there is no keyword 'calibratr'; see help. Did you mean 'calibrator'?"),
        ({"nodes_to_exclude": ["head"]}, "In qprof: keep_float= of a node or operator type."),
        ({"bias_mode": "fast"}, "docs/migration.md has the names of other quantizers."),
        ({"activation_type": "QuantType.QUInt8"}, "did you mean 'uint8'?"),
        ({"calibrator": "msee"}, "calibrator 'msee' is not one of .* did you mean 'mse'?"),
        ({"keep_float": "Gemm"}, "keep_float must be a list of names"),
        ({"target": "onnxruntime-x68"}, "Did you mean 'onnxruntime-x86'?"),
        ({"plan": "plan.yaml", "calibrator": "mse"}, "plan: has its own settings"),
        ({"plan": "plan.yaml", "speed": qprof.SpeedCheckOptions()}, "plan: has its own settings"),
        ({"plan": "plan.yaml", "data": "samples"}, "plan: has its own settings and takes no data="),
        ({"config": load_recipe(), "form": "qdq"}, "form: a recipe contains its settings"),
        ({"config": {"calibratr": "mse"}}, "unknown key 'calibratr'; did you mean 'calibrator'?"),
        (
            {"config": {"calibrator": "mse"}, "calibrator": "kl"},
            "config: means calibrator mse, but calibrator kl",
        ),
    ],
)
def test_a_wrong_keyword_is_refused_at_the_call(path: Path, options: Any, said: str) -> None:
    with pytest.raises(qprof.ConfigError, match=said):
        qprof.quantize(path, "no such profile.yaml", **options)


def test_settings_may_be_a_dict(path: Path, profile: qprof.Profile) -> None:
    made = qprof.quantize(path, profile, config={"calibrator": "minmax", "target": "onnx"}).plan.config
    assert (made.calibrator, made.target) == ("minmax", "onnx")


def test_a_plan_in_place_of_a_profile_is_refused_with_its_folder(
    path: Path, profile: qprof.Profile, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    qprof.quantize(path, profile).plan.save(plan)
    with pytest.raises(qprof.ProfileError, match=f"^{plan}: is a plan, not a profile"):
        qprof.quantize(path, plan)


class OfOnnxruntime(Enum):
    """As QuantType, QuantFormat and CalibrationMethod of onnxruntime.quantization."""

    QUInt8 = 1
    QOperator = 0
    MinMax = 2
    Entropy = 3


def test_words_of_onnxruntime_quantization_are_taken_as_enums(path: Path) -> None:
    images = [{"image": np.random.default_rng(0).random((8, 1, 8, 8), np.float32)}] * 2
    words: dict[str, Any] = {"activation_type": OfOnnxruntime.QUInt8, "form": OfOnnxruntime.QOperator}
    made = qprof.quantize(path, qprof.profile(path, images), calibrator=OfOnnxruntime.MinMax, **words)
    config = made.plan.config
    assert (config.activation_type, config.form, config.calibrator) == ("uint8", "qoperator", "minmax")
    with pytest.raises(qprof.ConfigError, match=r"'entropy' is not one of .* did you mean 'kl'"):
        qprof.quantize(path, "no such profile.yaml", calibrator=OfOnnxruntime.Entropy)


def test_a_profile_of_equal_samples_is_remarked_when_a_model_is_made_from_it(path: Path) -> None:
    zeros = qprof.profile(path, [{"image": np.zeros((8, 1, 8, 8), np.float32)}] * 4)
    made = qprof.quantize(path, zeros)
    remarks = [str(one) for one in made.findings if one.severity.name == "WARNING"]
    assert "input 'image' is 0 everywhere, in every sample; give real samples" in remarks
    assert "all 32 samples are equal; give samples that differ, as real data do" in remarks


def test_a_profile_of_another_model_is_refused(profile: qprof.Profile) -> None:
    other = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> other (float[N, 2] x) => (float[N, 2] y) { y = Relu(x) }'
    )
    with pytest.raises(qprof.ProfileError, match="the profile"):
        qprof.quantize(other, profile)


def test_errors_of_a_model_in_memory_name_no_temporary_folder(loader: Any) -> None:
    broken = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> my_net (float[N] x) => (float[N] y) { y = Nothing(x) }'
    )
    with pytest.raises(qprof.ModelError) as caught:
        qprof.profile(broken, loader)
    assert str(caught.value).startswith("my_net.onnx: ")


def test_a_quantized_model_that_is_not_there_is_named(path: Path, loader: Any) -> None:
    with pytest.raises(qprof.ModelError, match=r"nowhere\.onnx: no such file"):
        qprof.evaluate(path, "nowhere.onnx", loader)


def test_a_metric_of_the_table_reads_its_truth_and_a_card_holds_the_next_one(
    path: Path, result: Any, heldout: Any, labels: Any, tmp_path: Path
) -> None:
    found = qprof.evaluate(path, result, heldout, metric="top-1", labels=labels, latency=False)
    assert found.score is not None
    assert found.score.float_score > 90.0
    asked = {"metric": "top-1", "latency": False}
    accepted = qprof.card(path, result, heldout, labels=labels, **asked)
    accepted.save(tmp_path / "accepted.json")
    accepted.save(tmp_path / "tonight.json")
    again = qprof.verify(tmp_path / "accepted.json", tmp_path / "tonight.json", slack={"sqnr": 0.0})
    assert (again.passed, again.card, again.quantized_model) == (True, "accepted.json", "tonight.json")
    with pytest.raises(qprof.ConfigError, match="other labels or other options of the metric"):
        qprof.verify(accepted, qprof.card(path, result, heldout, labels=labels[::-1], **asked))
    with pytest.raises(qprof.ConfigError, match="data: a newer card is compared as it was measured"):
        qprof.verify(accepted, accepted, data=heldout)


def test_a_profile_that_is_loaded_has_the_samples_beside_its_file(
    path: Path, profile: Any, tmp_path: Path
) -> None:
    profile.save(tmp_path / "p.yaml")
    loaded = qprof.load_profile(tmp_path / "p.yaml")
    assert loaded.held_samples
    for name, source in (("object.onnx", loaded), ("file.onnx", tmp_path / "p.yaml")):
        qprof.quantize(path, source, tmp_path / name)
    assert same_file(tmp_path / "object.onnx", tmp_path / "file.onnx")


def test_as_many_answers_as_there_are_classes_are_no_metric(
    path: Path, result: Any, heldout: Any, labels: Any
) -> None:
    with pytest.raises(qprof.ConfigError, match="top-10: output 'logits' has 10 classes"):
        qprof.evaluate(path, result, heldout, metric="top-10", labels=labels, latency=False)


def test_the_first_profile_that_fits_is_used_again(
    path: Path, proto: Any, loader: Any, tmp_path: Path
) -> None:
    samples = list(loader)
    first = qprof.quantize(path, data=samples, output=tmp_path / "a.onnx", latency=False)
    proto.graph.node[0].name = "another"
    qprof.profile(proto, samples, tmp_path / "z.profile.yaml")
    again = qprof.quantize(path, data=samples, output=tmp_path / "b.onnx", latency=False)
    assert again.judged.profile == first.judged.profile
