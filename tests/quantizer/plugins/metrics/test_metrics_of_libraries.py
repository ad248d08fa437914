"""Each metric that is computed here, held against a library that has it."""

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.quantizer.plugins.metrics.images import similarity
from qprof_onnx.quantizer.plugins.metrics.texts import greedy_text

from ...evaluation.running import model_of, opened, rows, scored

jiwer = pytest.importorskip("jiwer", reason="of the extra test-all")
Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")
skimage_metrics = pytest.importorskip("skimage.metrics", reason="of the extra test-all")
sklearn_metrics = pytest.importorskip("sklearn.metrics", reason="of the extra test-all")

RNG = np.random.default_rng(0)


def batches(values: np.ndarray, size: int = 5) -> list[dict[str, np.ndarray]]:
    """Return an output "y" of some rows for each sample."""
    return [{"y": values[at : at + size]} for at in range(0, len(values), size)]


@pytest.mark.parametrize("k", [1, 3])
def test_top_k_is_that_of_scikit_learn(tmp_path, k) -> None:
    floats, labels = RNG.normal(size=(40, 7)).astype(np.float32), RNG.integers(0, 7, 40)
    quantized = floats + RNG.normal(size=floats.shape).astype(np.float32)
    np.save(tmp_path / "l.npy", labels)
    found = scored(
        opened(f"top-{k}", batches(floats)[0], tmp_path / "l.npy"), batches(floats), batches(quantized)
    )
    wanted = [
        100 * sklearn_metrics.top_k_accuracy_score(labels, v, k=k, labels=range(7))
        for v in (floats, quantized)
    ]
    assert [found.float_score, found.quantized_score] == pytest.approx(wanted, rel=1e-12)
    assert found.drop_low < found.drop < found.drop_high


def test_the_folders_of_pictures_are_their_classes(tmp_path) -> None:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "classes.txt").write_text("cat\ndog\nfox\nowl\n")
    found = scored(opened("top-1", rows(0, 0, 1), tmp_path), [rows(0, 0, 1)], [rows(0, 1, 1)])
    assert (found.float_score, found.quantized_score) == (100.0, pytest.approx(200 / 3))


def test_an_output_with_fewer_rows_is_wrong_in_all_of_them(tmp_path) -> None:
    (tmp_path / "l.txt").write_text("0\n1\n")
    found = scored(opened("top-2", rows(0, 1), tmp_path / "l.txt"), [rows(0, 1)], [rows(0)])
    assert (found.float_score, found.quantized_score) == (100.0, 0.0)


def test_a_class_whose_score_is_nan_is_not_among_the_first(tmp_path) -> None:
    (tmp_path / "l.txt").write_text("0\n1\n")
    broken = {"y": np.full((2, 4), np.nan, np.float32)}
    found = scored(opened("top-2", rows(0, 1), tmp_path / "l.txt"), [rows(0, 1)], [broken])
    assert (found.float_score, found.quantized_score) == (100.0, 0.0)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("rmse", lambda a, b: sklearn_metrics.mean_squared_error(a, b) ** 0.5),
        ("mae", sklearn_metrics.mean_absolute_error),
        ("r2", lambda a, b: 100 * sklearn_metrics.r2_score(a, b)),
    ],
)
def test_errors_of_numbers_are_those_of_scikit_learn(tmp_path, name, library) -> None:
    truth = RNG.normal(3.0, 2.0, (30, 4))
    floats, quantized = (truth + RNG.normal(0.0, s, truth.shape) for s in (0.3, 0.4))
    np.savetxt(tmp_path / "t.csv", truth, delimiter=",", header="a,b,c,d", comments="")
    np.save(tmp_path / "t.npy", truth)
    for file in ("t.csv", "t.npy"):
        found = scored(opened(name, batches(floats)[0], tmp_path / file), batches(floats), batches(quantized))
        wanted = [library(truth.ravel(), v.ravel()) for v in (floats, quantized)]
        assert [found.float_score, found.quantized_score] == pytest.approx(wanted, rel=1e-9)
        assert found.drop_low < found.drop < found.drop_high
        assert found.drop > 0.0


def test_the_numbers_of_a_row_may_be_a_column_of_a_table(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("name,price\na,2.5\nb,1\n")
    outputs = [{"y": np.array([[2.0], [1.0]], np.float32)}]
    assert scored(opened("mae", outputs[0], f"{tmp_path}/t.csv:price"), outputs, outputs).float_score == 0.25
    with pytest.raises(DataError, match=r"t.csv:name: cannot be read: could not convert .*'a'"):
        opened("mae", outputs[0], f"{tmp_path}/t.csv:name")


def test_the_bootstrap_interval_is_the_same_each_time(tmp_path) -> None:
    truth = RNG.normal(size=(30, 1))
    np.save(tmp_path / "t.npy", truth)
    samples = batches(truth + 0.1), batches(truth + RNG.normal(0.0, 0.2, truth.shape))
    first, second = (scored(opened("rmse", samples[0][0], tmp_path / "t.npy"), *samples) for _ in range(2))
    assert first == second
    one = {"y": truth[:1]}
    np.save(tmp_path / "t.npy", truth[:1] + 1.0)
    assert scored(opened("rmse", one, tmp_path / "t.npy"), [one], [one]).drop_high == float("inf")


def test_numbers_of_another_count_are_refused(tmp_path) -> None:
    np.save(tmp_path / "t.npy", np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"true numbers for output 'y' of shape \[2, 4\]"):
        scored(opened("mae", rows(0, 1), tmp_path / "t.npy"), [rows(0, 1)], [rows(0, 1)])


def pictures(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return true pictures uint8 [count, height, width, 3], and outputs [count, 3, height, width] in 0..1."""
    true = RNG.integers(0, 256, (count, 24, 20, 3), dtype=np.uint8)
    planes = true.transpose(0, 3, 1, 2) / 255.0
    floats, quantized = (np.clip(planes + RNG.normal(0, s, planes.shape), 0, 1) for s in (0.05, 0.06))
    return true, floats, quantized


def test_psnr_and_ssim_are_those_of_scikit_image(tmp_path) -> None:
    true, floats, quantized = pictures(3)
    for number, picture in enumerate(true):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    samples = batches(floats, 1), batches(quantized, 1)
    psnr, ssim = (scored(opened(name, samples[0][0], tmp_path), *samples) for name in ("psnr", "ssim"))
    planes = true.transpose(0, 3, 1, 2) / 255.0
    wanted = [
        np.mean(
            [
                skimage_metrics.peak_signal_noise_ratio(a, b, data_range=1.0)
                for a, b in zip(planes, v, strict=True)
            ]
        )
        for v in (floats, quantized)
    ]
    assert [psnr.float_score, psnr.quantized_score] == pytest.approx(wanted, rel=1e-9)
    similar = [
        skimage_metrics.structural_similarity(
            a,
            b,
            data_range=1.0,
            channel_axis=0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        for a, b in zip(planes, quantized, strict=True)
    ]
    assert ssim.quantized_score == pytest.approx(100 * np.mean(similar), rel=1e-9)
    assert similarity(planes[0], planes[0], 1.0) == pytest.approx(1.0, rel=1e-12)


def test_a_picture_of_another_size_is_refused(tmp_path) -> None:
    _, floats, _ = pictures(1)
    np.save(tmp_path / "t.npy", np.zeros((1, 3, 24, 21)))
    with pytest.raises(DataError, match="give pictures of that size"):
        scored(opened("psnr", {"y": floats}, tmp_path / "t.npy"), [{"y": floats}], [{"y": floats}])


def test_mean_iou_is_the_macro_mean_of_scikit_learn(tmp_path) -> None:
    true = RNG.integers(0, 4, (6, 8, 8))
    scores = [np.eye(4)[true].transpose(0, 3, 1, 2) + RNG.normal(0, s, (6, 4, 8, 8)) for s in (0.5, 0.7)]
    np.save(tmp_path / "m.npy", true)
    samples = [batches(s.astype(np.float32), 2) for s in scores]
    found = scored(opened("miou", samples[0][0], tmp_path / "m.npy"), *samples)
    masks = [s.astype(np.float32).argmax(axis=1) for s in scores]
    wanted = [100 * sklearn_metrics.jaccard_score(true.ravel(), m.ravel(), average="macro") for m in masks]
    assert [found.float_score, found.quantized_score] == pytest.approx(wanted, rel=1e-12)
    without = scored(opened("miou", samples[0][0]), *samples)
    assert without.float_score == 100.0
    assert without.quantized_score == pytest.approx(
        100 * sklearn_metrics.jaccard_score(masks[0].ravel(), masks[1].ravel(), average="macro"), rel=1e-12
    )


def test_pixels_that_are_ignored_do_not_count(tmp_path) -> None:
    Image.fromarray(np.array([[1, 255], [0, 255]], np.uint8)).save(tmp_path / "0.png")
    floats = {"y": np.array([[[[2.0, 2.0], [-2.0, -2.0]]]])}
    metric = opened("miou", floats, tmp_path)
    assert scored(metric, [floats], [{"y": -floats["y"]}]).float_score == 100.0
    assert "class 1 above 0" in metric.assumed[0]


def test_retrieval_counts_queries_whose_document_is_near(tmp_path) -> None:
    vectors = RNG.normal(size=(40, 16))
    vectors[1::2] = vectors[::2] + RNG.normal(0, 1.2, (20, 16))
    (tmp_path / "pairs.txt").write_text("\n".join(str(at // 2) for at in range(40)))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    near = units[::2] @ units[1::2].T
    ranks = (near >= np.diagonal(near)[:, None]).sum(axis=1)
    samples = batches(vectors, 4)
    for name, wanted in (
        ("recall@1", (ranks == 1).mean()),
        ("recall@5", (ranks <= 5).mean()),
        ("mrr", (1 / ranks).mean()),
    ):
        found = scored(opened(name, samples[0], tmp_path / "pairs.txt"), samples, samples)
        assert found.float_score == pytest.approx(100 * wanted, rel=1e-12)
        assert (found.rows, found.drop) == (20, 0.0)
    few = scored(opened("recall@1:among=5", samples[0], tmp_path / "pairs.txt"), samples, samples)
    blocks = [near[at : at + 5, at : at + 5] for at in range(0, 20, 5)]
    wanted = np.mean([(b.argmax(axis=1) == np.arange(5)).mean() for b in blocks])
    assert few.float_score == pytest.approx(100 * wanted, rel=1e-12)


def test_a_query_without_a_document_is_refused(tmp_path) -> None:
    (tmp_path / "pairs.txt").write_text("0\n0\n1\n2\n2\n")
    samples = [{"y": RNG.normal(size=(5, 3))}]
    with pytest.raises(DataError, match="pair 1 has one row, a query without a document"):
        scored(opened("mrr", samples[0], tmp_path / "pairs.txt"), samples, samples)


def test_cosine_is_measured_against_the_float_model() -> None:
    floats, quantized = (
        [{"y": np.array([[1.0, 0.0], [3.0, 4.0]])}],
        [{"y": np.array([[2.0, 0.0], [4.0, 3.0]])}],
    )
    found = scored(opened("cosine", floats[0]), floats, quantized)
    assert (found.float_score, found.quantized_score) == pytest.approx((100.0, 98.0), rel=1e-12)


TOKENS = ("", *"abcdefgh ")


def spoken(text: str, steps: int = 40) -> np.ndarray:
    """Return CTC scores [time, classes] that read as a text: each letter twice, a blank after it."""
    classes = [c for letter in text for c in (TOKENS.index(letter), TOKENS.index(letter), 0)]
    return np.eye(len(TOKENS), dtype=np.float32)[classes + [0] * (steps - len(classes))]


def test_ctc_is_read_greedily() -> None:
    assert greedy_text(spoken("abba cab"), TOKENS, 0) == "abba cab"


@pytest.mark.parametrize(("name", "library"), [("wer", jiwer.wer), ("cer", jiwer.cer)])
def test_error_rates_are_those_of_jiwer(tmp_path, name, library) -> None:
    true = ["abba cab", "face fad gag", "bad hag", "egg a feed"]
    read = [true, ["abba cat".replace("t", "b"), "face gag", "bad hag h", "eg a fed"]]
    (tmp_path / "tokens.txt").write_text("\n".join(TOKENS))
    (tmp_path / "lines.txt").write_text("\n".join(true) + "\n")
    samples = [[{"y": spoken(text)[None]} for text in texts] for texts in read]
    asked = f"{name}:charset={tmp_path / 'tokens.txt'}"
    found = scored(opened(asked, samples[0][0], tmp_path / "lines.txt"), *samples)
    assert found.float_score == 0.0
    assert found.quantized_score == pytest.approx(100 * library(true, read[1]), rel=1e-12)
    assert found.drop == found.quantized_score
    assert scored(opened(asked, samples[0][0]), *samples) == found  # the float model reads the truth


def test_a_charset_without_blank_and_space_gets_both_and_time_may_come_first() -> None:
    model = model_of("y")
    model.metadata_props["character"] = "\n".join("abcdefgh") + "\n"
    output = {"y": spoken("a bad cab")[:, None]}
    metric = opened("cer", output, model=model)
    assert (
        "[time, rows, classes], class 0 is the blank, 8 texts from the model's metadata and a space"
        in metric.assumed[0]
    )
    assert metric.truth(None, output) == (["a bad cab"], 0)
    with pytest.raises(ConfigError, match="needs the text of each class"):
        opened("cer", output)


def test_texts_and_token_numbers_are_read_as_they_are(tmp_path) -> None:
    (tmp_path / "t.txt").write_text("x\na\nb\n")
    strings = {"y": np.array(["ab c", "d"], object)}
    assert opened("wer", strings).truth(None, strings) == (["ab c", "d"], 0)
    numbers = {"y": np.array([[1, 2, 0, 1, 1]])}
    metric = opened(f"cer:charset={tmp_path / 't.txt'},blank=-1,end=0", numbers)
    assert metric.truth(None, numbers) == (["ab"], 0)


def test_an_output_that_a_metric_cannot_read_names_the_option_that_chooses_another() -> None:
    with pytest.raises(ModelError, match=r"no directions .* with --scored-output$"):
        opened("cosine", {"y": np.array([1, 2])})


def test_an_output_that_is_no_picture_is_refused(tmp_path) -> None:
    np.save(tmp_path / "t.npy", np.zeros((2, 4)))
    with pytest.raises(ModelError, match=r"is not a picture .*--scored-output$"):
        scored(opened("psnr", rows(0, 1), tmp_path / "t.npy"), [rows(0, 1)], [rows(0, 1)])


@pytest.mark.parametrize(
    ("name", "score"), [("psnr", 0.0), ("ssim", 0.0), ("rmse", np.nan), ("cosine", 0.0), ("miou", None)]
)
def test_an_output_that_is_not_finite_scores_as_badly_as_can_be(tmp_path, name, score) -> None:
    floats = {"y": RNG.random((2, 1, 16, 16))}
    np.save(tmp_path / "t.npy", floats["y"])
    truth = tmp_path / "t.npy" if name in ("psnr", "ssim", "rmse") else None
    broken = {"y": np.full_like(floats["y"], np.nan)}
    found = scored(opened(name, floats, truth), [floats, floats][:1], [broken])
    if score is not None:
        assert found.quantized_score == pytest.approx(score, nan_ok=True)
    assert found.drop > 0.0
    assert found.drop_high >= found.drop


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04rubbish", "texts"])
def test_a_file_that_holds_no_numbers_is_refused(tmp_path, content) -> None:
    if content == "texts":
        np.save(tmp_path / "t.npy", np.array(["a", "b"]))
    else:
        (tmp_path / "t.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"t.npy: cannot be read: .*; check the file of labels"):
        opened("rmse", rows(0, 1), tmp_path / "t.npy")
