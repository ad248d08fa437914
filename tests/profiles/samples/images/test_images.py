"""Folders of pictures as samples: which files, how prepared, and what is refused."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError, QprofError
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.profiles.samples.samples import input_specs, open_samples
from qprof_onnx.profiles.samples.values import InputSpec, Samples

Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)


def spec(*shape: int | str | None, dtype: Any = np.float32, name: str = "x") -> InputSpec:
    return InputSpec(name, np.dtype(dtype), shape)


NCHW = spec(1, 3, 8, 8)


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Return a picture without two equal rows or columns."""
    y, x = np.mgrid[:height, :width]
    rgb = np.stack([x * 251 // width, y * 241 // height, (x * y) % 256], -1).astype(np.uint8)
    return Image.fromarray(rgb).convert(mode)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, size in enumerate([(20, 12), (12, 20), (16, 16)]):
        picture(*size).save(folder / f"{number}.png")
    return folder


def opened(source: Path, preprocess: str | Path | None, *inputs: InputSpec) -> Samples:
    text = None if preprocess is None else str(preprocess)
    return open_samples(PreprocessedData(str(source), text), inputs or (NCHW,))


def arrays(source: Path, preprocess: str | Path, *inputs: InputSpec) -> list[npt.NDArray[Any]]:
    return [sample.arrays["x"] for sample in opened(source, preprocess, *inputs)]


def recipe(folder: Path, text: str) -> Path:
    (folder / "recipe.yaml").write_text(f"reader: image\n{text}\n")
    return folder / "recipe.yaml"


def refusal(source: Path, preprocess: str | Path | None, *inputs: InputSpec) -> str:
    with pytest.raises(QprofError) as caught:
        list(opened(source, preprocess, *inputs))
    assert isinstance(caught.value, ConfigError | DataError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("resize: exact", (0, 0, 8, 8)),
        ("resize: letterbox", (0, 1, 8, 6)),
        ("resize: letterbox\nplace: top-left", (0, 0, 8, 5)),
        ("resize: shorter\ncrop: center\ncrop_share: 1.0", (-2, 0, 11, 8)),
        ("resize: none\ncrop: [8, 8]", (-6, -2, 14, 10)),
    ],
)
def test_a_sample_has_the_picture_as_its_file_has_it_and_where_it_is_in_the_input(
    photos: Path, tmp_path: Path, text: str, box: tuple[int, ...]
) -> None:
    first = next(iter(opened(photos, recipe(tmp_path, text))))
    (original,) = first.originals
    assert original.picture is not None
    found = original.picture(10)
    assert (found.size, found.box) == ((10, 6), box)
    with Image.open(io.BytesIO(found.content)) as small:
        assert small.size == (10, 6)


def test_a_picture_that_has_gone_cannot_be_shown(photos: Path) -> None:
    first = next(iter(opened(photos, "imagenet")))
    (photos / "0.png").unlink()
    assert first.originals[0].picture is not None
    with pytest.raises(DataError, match=r"0\.png"):
        first.originals[0].picture(10)


# ---------------------------------------------------------------------------------------------- which files


def test_pictures_come_in_natural_order_with_those_of_the_folders_in_it_last(photos: Path) -> None:
    for name in ("10.jpg", "2.webp", "dogs/1.bmp", "cats/1.TIFF", ".hidden.png", "cats/.git/1.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        picture(9, 9).save(photos / name)
    (photos / "notes.txt").write_text("not a picture")
    names = [sample.name for sample in opened(photos, "imagenet")]
    assert names == ["0.png", "1.png", "2.png", "2.webp", "10.jpg", "cats/1.TIFF", "dogs/1.bmp"]


def test_the_number_of_pictures_is_known_and_a_part_of_a_part_is_the_right_one(photos: Path) -> None:
    samples = opened(photos, "imagenet")
    assert samples.total == 3
    part = samples.part(1).part(0, 1)
    assert part.total == 1
    assert [sample.name for sample in part] == ["1.png"]
    assert [sample.name for sample in opened(photos / "1.png", "imagenet")] == ["1.png"]


def test_other_files_are_passed_over_and_counted(photos: Path) -> None:
    assert not str(opened(photos, "raw").findings[0]).endswith("passed over")
    for name in ("list.csv", "classes.txt", ".hidden", "readme"):
        (photos / name).touch()
    assert str(opened(photos, "raw").findings[0]).endswith("; 2 other files passed over")


def test_pictures_without_a_recipe_are_refused_with_the_choices(photos: Path) -> None:
    message = refusal(photos, None)
    assert "imagenet, clip, yolo, raw" in message
    assert message.endswith(f"--data {photos} --preprocess imagenet")
    assert "--preprocess imagenet:224x224, with the size of" in refusal(photos, None, spec(1, 3, "h", None))


def test_a_model_of_ultralytics_states_its_recipe_and_the_size_of_its_free_sides(photos: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N,3,H,W] x) => (float[] y) { y = Relu (x) }'
    model = ir.from_onnx_text(text)
    model.metadata_props.update({"task": "detect", "imgsz": "[320, 640]"})
    inputs = input_specs(model)
    assert refusal(photos, None, *inputs).endswith("--preprocess yolo:320x640")
    assert arrays(photos, "yolo", *inputs)[0].shape == (1, 3, 320, 640)
    assert arrays(photos, "yolo:32", *inputs)[0].shape == (1, 3, 32, 32)
    assert "--preprocess raw:224" in refusal(photos, "raw", *inputs)


def test_a_recipe_decides_what_is_read_of_a_folder_of_arrays_and_pictures(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((1, 3, 8, 8), np.float32))
    assert "contains arrays, but --preprocess imagenet is for image" in refusal(tmp_path, "imagenet")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("reader: aray")
    assert "is for aray; give a recipe with reader: array" in (said := refusal(tmp_path, str(recipe)))
    assert said.endswith("Did you mean 'array'?")
    picture(9, 9).save(tmp_path / "b.png")
    assert [sample.name for sample in open_samples(tmp_path, (NCHW,))] == ["a.npy"]
    assert [sample.name for sample in opened(tmp_path, "raw")] == ["b.png"]


def test_a_source_that_is_missing_or_empty_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.dat").touch()
    for name, sentence in (
        ("none", "none: no such folder or file"),
        ("lines.csv", "lines.csv: no such folder or file"),
        ("empty", "empty: is empty"),
        ("other", "other: contains 'x.dat' but no samples; expected pictures"),
        ("other/x.dat", "x.dat: is no file of samples; give pictures"),
    ):
        assert sentence in refusal(tmp_path / name, "imagenet")


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"no picture at all", None])
def test_a_broken_picture_is_named(photos: Path, content: bytes | None) -> None:
    if content is None:  # cut off
        picture(64, 64).save(photos / "3.jpg")
        content = (photos / "3.jpg").read_bytes()[:-400]
    (photos / "3.jpg").write_bytes(content)
    message = refusal(photos, "raw")
    assert re.search(r"3\.jpg: cannot be read as a picture \([^<]*\); replace or remove it", message)


def test_of_several_pages_the_first_is_taken(photos: Path) -> None:
    first = picture(9, 9)
    first.save(photos / "3.tiff", save_all=True, append_images=[picture(7, 7)])
    first.save(photos / "4.png")
    pages, alone = arrays(photos, "raw")[3:]
    assert np.array_equal(pages, alone)


def test_a_palette_with_transparency_is_read(photos: Path) -> None:
    picture(9, 9).quantize(8).save(photos / "3.png", transparency=bytes([0, 255]))
    assert len(arrays(photos, "raw")) == 4


@pytest.mark.parametrize("size", [(1, 300), (300, 1), (1, 1)])
def test_pictures_of_any_proportions_are_prepared(tmp_path: Path, size: tuple[int, int]) -> None:
    picture(*size).save(tmp_path / "a.png")
    for name in ("imagenet", "clip", "yolo", "raw"):
        assert arrays(tmp_path, name)[0].shape == (1, 3, 8, 8)


def test_a_picture_that_cannot_be_resized_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(Image.Image, "resize", fails)
    assert "0.png: 20 x 12 pixels cannot be resized (too large); remove it" in refusal(photos, "raw")


def test_16_bit_pictures_are_refused_rather_than_cut(photos: Path) -> None:
    Image.fromarray(np.full((9, 9), 40000, np.uint16)).save(photos / "3.png")
    assert "3.png: has more than 8 bits" in refusal(photos, "raw")


# ------------------------------------------------------------------------------------------------ the steps


def test_imagenet_is_the_arithmetic_of_torchvision(photos: Path) -> None:
    image = Image.open(photos / "0.png")  # 20 x 12: to 9 (8 / 0.875) and int(9 * 20 / 12)
    resized = np.asarray(image.resize((15, 9), Image.Resampling.BILINEAR))
    top, left = round((9 - 8) / 2), round((15 - 8) / 2)
    cropped = resized[top : top + 8, left : left + 8].astype(np.float32) / np.float32(255)
    expected = ((cropped - MEAN) / STD).transpose(2, 0, 1)[None]
    assert np.array_equal(arrays(photos, "imagenet")[0], expected)


def test_yolo_keeps_the_whole_picture_amid_grey(photos: Path) -> None:
    wide, tall, square = arrays(photos, "yolo")
    grey = np.float32(114) / np.float32(255)
    assert np.all(wide[0, :, 0] == grey)
    assert np.all(wide[0, :, 7] == grey)
    assert not np.any(wide[0, :, 3] == grey)
    assert np.all(tall[0, :, :, 7] == grey)
    assert not np.any(square == grey)


def test_raw_is_the_pixels_of_the_size(photos: Path) -> None:
    expected = np.asarray(Image.open(photos / "0.png").resize((8, 8), Image.Resampling.BILINEAR))
    assert np.array_equal(arrays(photos, "raw")[0][0], expected.transpose(2, 0, 1).astype(np.float32))


def test_an_input_of_bytes_takes_the_pixels_as_they_are(photos: Path) -> None:
    nhwc = spec(1, 8, 8, 3, dtype=np.uint8)
    (array, *_) = arrays(photos, "imagenet", nhwc)
    assert array.dtype == np.uint8
    assert array.shape == (1, 8, 8, 3)
    assert array.max() > 100


def test_pictures_are_turned_as_their_exif_data_says(photos: Path) -> None:
    image = picture(20, 12)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned right by 90 degrees to be upright
    image.save(photos / "3.png", exif=exif)
    image.transpose(Image.Transpose.ROTATE_270).save(photos / "4.png")
    turned, upright = arrays(photos, "raw")[3:]
    assert np.array_equal(turned, upright)


@pytest.mark.parametrize(
    ("color", "mode", "order"),
    [("bgr", "RGB", [2, 1, 0]), ("gray", "L", [0]), ("rgba", "RGBA", [0, 1, 2, 3])],
)
def test_the_order_of_the_channels_is_that_of_the_recipe(
    photos: Path, color: str, mode: str, order: list[int]
) -> None:
    expected = np.atleast_3d(np.asarray(Image.open(photos / "2.png").convert(mode)))[:, :, order]
    found = arrays(photos, recipe(photos, f"color: {color}\nscale: 1"), spec(1, len(order), 16, 16))[2]
    assert np.array_equal(found[0], expected.transpose(2, 0, 1).astype(np.float32))


def test_pictures_have_the_shape_and_type_of_the_input(photos: Path) -> None:
    first, last = arrays(photos, "raw")[0], arrays(photos, "raw", spec(None, 8, 8, 3))[0]
    assert np.array_equal(first.transpose(0, 2, 3, 1), last)
    assert [array.shape for array in arrays(photos, "raw", spec("N", 1, 8, 8))] == [(1, 1, 8, 8)] * 3
    assert arrays(photos, "raw", spec(3, 8, 8))[0].shape == (3, 8, 8)
    assert arrays(photos, "imagenet", spec(1, 3, 8, 8, dtype=np.float16))[0].dtype == np.float16


def test_a_picture_that_is_too_small_for_a_crop_is_filled(photos: Path) -> None:
    found = arrays(
        photos, recipe(photos, "resize: none\ncrop: center\nfill: 9\nscale: 1"), spec(1, 3, 16, 16)
    )
    assert np.all(found[0][0, :, 0] == 9)
    assert not np.all(found[0][0, :, 8] == 9)


@pytest.mark.parametrize(
    ("missing", "before"), [(1, (0, 1)), (2, (1, 1)), (3, (1, 2)), (7, (3, 4)), (8, (4, 4)), (11, (5, 6))]
)
def test_a_border_of_odd_width_is_split_as_torchvision_and_as_transformers_do(
    tmp_path: Path, missing: int, before: tuple[int, int]
) -> None:
    """torchvision pads (crop - size) // 2 before the picture, transformers ceil((crop - size) / 2)."""
    Image.new("RGB", (5, 5), (200, 200, 200)).save(tmp_path / "0.png")
    side = 5 + missing
    for offset, expected in zip(("round", "floor"), before, strict=True):
        text = f"resize: none\ncrop: center\ncrop_offset: {offset}\nfill: 9\nscale: 1"
        (found,) = arrays(tmp_path, recipe(tmp_path, text), spec(1, 3, side, side))
        row = [9] * expected + [200] * 5 + [9] * (missing - expected)
        assert found[0, 0, expected].tolist() == row
        assert found[0, 0, :, expected].tolist() == row


def test_a_side_that_is_too_long_is_cut_beside_one_that_is_filled(tmp_path: Path) -> None:
    picture(5, 9).save(tmp_path / "0.png")
    text = "resize: none\ncrop: center\nfill: 9\nscale: 1"
    (found,) = arrays(tmp_path, recipe(tmp_path, text), spec(1, 3, 6, 6))
    middle = np.asarray(picture(5, 9))[2:8].transpose(2, 0, 1)  # round(1.5) rows before, none of 1 column
    assert np.array_equal(found[0, :, :, :5], middle)
    assert np.all(found[0, :, :, 5] == 9)


def transparent(folder: Path, mode: str) -> Path:
    """Write a picture of which one pixel of four is transparent, one half so and two are not."""
    pixels = [(200, 0, 0, 0), (200, 0, 0, 128), (200, 0, 0, 255), (10, 20, 30, 255)]
    image = Image.new("RGBA", (2, 2))
    image.putdata(pixels)
    folder.mkdir()
    image.convert(mode).save(folder / "0.png")
    return folder


def test_do_convert_rgb_puts_transparent_pictures_on_white(tmp_path: Path) -> None:
    folder = transparent(tmp_path / "p", "RGBA")
    steps = {"do_resize": False, "do_center_crop": False, "do_normalize": False, "rescale_factor": 1.0}
    file = config(tmp_path, **steps, do_convert_rgb=True)
    (found,) = arrays(folder, file, spec(1, 3, 2, 2))
    # 200 and 0 with alpha 128 of 255 over 255: 200 * 0.502 + 255 * 0.498 = 227.4, and 127
    white = [[255, 255, 255], [227, 127, 127], [200, 0, 0], [10, 20, 30]]
    assert found[0].reshape(3, 4).T.tolist() == white


def test_gray_with_alpha_is_put_on_the_background_too(tmp_path: Path) -> None:
    folder = transparent(tmp_path / "p", "LA")
    (found,) = arrays(folder, recipe(tmp_path, "background: 7\nresize: none\nscale: 1"), spec(1, 1, 2, 2))
    assert found[0, 0, 0, 0] == 7


def test_hidden_colours_of_transparent_pictures_are_shown(tmp_path: Path) -> None:
    folder = transparent(tmp_path / "p", "RGBA")
    (found,) = arrays(folder, recipe(tmp_path, "resize: none\nscale: 1"), spec(1, 3, 2, 2))
    assert found[0, :, 0, 0].tolist() == [200, 0, 0]


def test_letterbox_may_put_the_picture_at_the_top_left(photos: Path) -> None:
    text = "base: yolo\nplace: top-left\nscale: 1"
    assert np.all(arrays(photos, recipe(photos, text))[0][0, :, 5:] == 114)


def test_without_antialias_pixels_are_interpolated_as_opencv_does(photos: Path) -> None:
    found = arrays(photos, recipe(photos, "antialias: false\nscale: 1"), spec(1, 3, 8, 8))[2][0]
    pixels = np.asarray(Image.open(photos / "2.png")).astype(float)  # 16 x 16 to 8 x 8: means of 2 x 2 pixels
    means = pixels.reshape(8, 2, 8, 2, 3).mean((1, 3)).transpose(2, 0, 1)
    assert np.abs(found - means).max() <= 1  # Pillow rounds in between


# ------------------------------------------------------------------------------------------------- the size


def test_a_size_that_the_model_leaves_free_is_asked_for(photos: Path) -> None:
    message = refusal(photos, "imagenet", spec(1, 3, None, None))
    assert "the size is not known" in message
    assert "--preprocess imagenet:224" in message
    free = refusal(photos, recipe(photos, "resize: exact"), spec(1, 3, "h", "w"))
    assert "size: 224, or size: [192, 256]" in free


def test_a_size_may_follow_the_name_of_a_recipe(photos: Path) -> None:
    assert arrays(photos, "raw:6x4", spec(1, 3, None, None))[0].shape == (1, 3, 6, 4)
    assert arrays(photos, "raw:6", spec(1, 3, None, None))[0].shape == (1, 3, 6, 6)


def test_another_size_than_that_of_the_model_is_refused(photos: Path) -> None:
    assert "leave the size out" in refusal(photos, "raw:6")


def test_where_channels_are_is_asked_for_where_the_input_does_not_say(photos: Path) -> None:
    assert "layout: nchw or layout: nhwc" in refusal(photos, "raw:8", spec(1, None, None, None))
    given = arrays(photos, recipe(photos, "base: raw\nsize: 8\nlayout: nhwc"), spec(1, None, None, None))
    assert given[0].shape == (1, 8, 8, 3)


def test_an_input_for_no_picture_is_refused(photos: Path) -> None:
    assert "a picture needs 3 or 4 dimensions" in refusal(photos, "raw", spec(1, 64))


# ------------------------------------------------------------------------------------------- several inputs


def test_other_inputs_have_constants(photos: Path) -> None:
    sizes, mask = spec("N", 2, dtype=np.int64, name="sizes"), spec(1, 8, 8, dtype=np.bool_, name="mask")
    file = recipe(photos, "base: raw\nconstants: {sizes: [640, 480], mask: 1}")
    sample = next(iter(opened(photos, file, NCHW, sizes, mask)))
    assert sample.arrays["sizes"].tolist() == [[640, 480]]
    assert sample.arrays["mask"].all()
    assert sample.arrays["mask"].shape == (1, 8, 8)


def test_an_input_without_a_value_is_named(photos: Path) -> None:
    message = refusal(photos, "raw", NCHW, spec(1, 2, dtype=np.int64, name="sizes"))
    assert "constants: {sizes: VALUE}" in message
    assert "base: raw" in message


def test_the_input_of_the_picture_is_named_where_there_are_several(photos: Path) -> None:
    two = (NCHW, spec(1, 3, 8, 8, name="y"))
    assert "input: NAME" in refusal(photos, "raw", *two)
    file = recipe(photos, "base: raw\ninput: y\nconstants: {x: 0}")
    assert not next(iter(opened(photos, file, *two))).arrays["x"].any()


def test_pictures_are_put_together_to_the_batch_of_the_model(photos: Path) -> None:
    sizes = spec(2, 2, dtype=np.int64, name="sizes")
    file = recipe(photos, "base: raw\nconstants: {sizes: [640, 480]}")
    (sample,) = opened(photos, file, spec(2, 3, 8, 8), sizes)
    assert sample.arrays["x"].shape == (2, 3, 8, 8)
    assert sample.arrays["sizes"].tolist() == [[640, 480]] * 2


# ----------------------------------------------------------------------------------------- recipes in files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resise: exact", "resise: is not a key .* Did you mean 'resize'"),
        ("resize: longer", "resize: 'longer' is not allowed; give shorter"),
        ("mean: 0.5", r"mean: 0.5 is not allowed; give a list"),
        ("mean: [1, 2]", "mean: has 2 numbers, and the model's input 3 channels"),
        ("std: [0, 1, 1]", "nothing can be divided by 0"),
        ("scale: a/b", "scale 'a/b': is not a number"),
        ("base: imagnet", "base: 'imagnet' is not a built-in recipe"),
        ("crop: 0", "take pixels from 1"),
        ("input: y", "input 'y': is not an input of the model; its inputs are 'x'"),
        ("dtype: float33", "dtype 'float33': is not a type"),
        ("constants: {y: 1}", "'y' is not an input of the model"),
    ],
)
def test_what_a_recipe_may_not_say_is_refused(photos: Path, text: str, expected: str) -> None:
    assert re.search(expected, refusal(photos, recipe(photos, text)))


def test_a_recipe_that_is_not_there_is_refused_with_the_names(photos: Path) -> None:
    assert "(imagenet, clip, yolo, raw)" in refusal(photos, "imagnet")
    assert "Did you mean 'imagenet'?" in refusal(photos, "imagnet")


def test_a_file_that_is_no_recipe_is_refused(photos: Path) -> None:
    (photos / "config.json").write_text('{"model_type": "vit"}')
    assert "has no key 'reader'" in refusal(photos, photos / "config.json")


# --------------------------------------------------------------------------------- preprocessor_config.json

CLIP = {
    "crop_size": 8,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
    "resample": 3,
    "size": 8,
}


def config(folder: Path, **changes: Any) -> Path:
    (folder / "preprocessor_config.json").write_text(json.dumps({**CLIP, **changes}))
    return folder / "preprocessor_config.json"


def test_a_preprocessor_config_is_the_arithmetic_of_transformers(photos: Path) -> None:
    image = Image.open(photos / "0.png")  # 20 x 12: shorter side to 8, the longer to int(8 * 20 / 12)
    resized = np.asarray(image.resize((13, 8), Image.Resampling.BICUBIC))
    cropped = (resized[:, 2:10].astype(np.float64) * (1 / 255)).astype(np.float32)
    expected = (cropped - np.array([0.5, 0.4, 0.3], np.float32)) / np.array([0.2, 0.3, 0.4], np.float32)
    assert np.array_equal(arrays(photos, config(photos))[0][0], expected.transpose(2, 0, 1))


def test_one_number_is_both_sides_for_a_processor_that_takes_it_so(photos: Path) -> None:
    file = config(photos, feature_extractor_type="ViTFeatureExtractor", do_center_crop=False, crop_size=None)
    expected = Image.open(photos / "0.png").resize((8, 8), Image.Resampling.BICUBIC)
    found = arrays(photos, file)[0][0] * np.float32(0.2) + np.float32(0.5)
    assert np.allclose(found[0], np.asarray(expected)[:, :, 0] / 255, atol=1e-6)  # one rounding of float32


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"do_pad": True}, "do_pad: True is not supported"),
        (
            {"size": {"height": 8, "width": 8}, "keep_aspect_ratio": True},
            "keep_aspect_ratio: True is not supported",
        ),
        ({"size": {"shortest_edge": 8, "longest_edge": 16}}, "longest_edge: 16 is not supported"),
        (
            {"feature_extractor_type": "ConvNextFeatureExtractor"},
            "ConvNextFeatureExtractor resizes by crop_pct",
        ),
        ({"feature_extractor_type": None}, "the side is unknown"),
        ({"resample": 9}, "resample 9: is not a filter of Pillow"),
        ({"image_mean": "a"}, "image_mean: is 'a'"),
        ({"crop_size": {"width": 8}}, "crop_size: is"),
        ({"rescale_factor": "half"}, "rescale_factor: is 'half'"),
        ({"rescale_factor": None}, "rescale_factor: is None"),
        ({"image_std": [0.5, 10**400, 0.5]}, "image_std: is [0.5, 1"),
        ({"image_mean": [[]]}, "image_mean: is [[]]"),
        ({"crop_size": {"height": 10**12, "width": 8}}, "cannot be resized"),
        ({"size": 10**30, "feature_extractor_type": "ViTFeatureExtractor"}, "cannot be resized"),
    ],
)
def test_what_a_recipe_has_not_is_refused_by_name(photos: Path, changes: Any, expected: str) -> None:
    assert expected in refusal(photos, config(photos, **changes))


@pytest.mark.parametrize(("preprocess", "dtype"), [("raw", np.int8), ("imagenet", np.int64)])
def test_integers_that_cannot_hold_the_pixels_are_refused(photos: Path, preprocess: str, dtype: Any) -> None:
    assert "pixels that it cannot hold" in refusal(photos, preprocess, spec(1, 3, 8, 8, dtype=dtype))


def test_integers_that_hold_the_pixels_are_taken(photos: Path, tmp_path: Path) -> None:
    made = recipe(tmp_path, "scale: 1\nmean: [128]")
    (first, *_) = arrays(photos, made, spec(1, 3, 8, 8, dtype=np.int8))
    (pixels, *_) = arrays(photos, "raw")
    assert (first == pixels - 128).all()


@pytest.mark.parametrize(("pixels", "is_read"), [(300, True), (100, False)])
def test_a_picture_of_many_pixels_is_read_in_silence_or_refused_in_a_line(
    photos: Path, monkeypatch: pytest.MonkeyPatch, pixels: int, is_read: bool
) -> None:
    for file in photos.iterdir():
        file.unlink()
    Image.new("RGB", (20, 20)).save(photos / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
    size = [InputSpec("x", np.dtype(np.float32), (1, 3, 20, 20))]
    samples = open_samples(PreprocessedData(str(photos), "raw"), size)
    if is_read:  # between one and two times as many: a warning of Pillow's would be an error here
        assert len(list(samples)) == 1
    else:
        with pytest.raises(DataError, match=r"a\.png: has more than 0 million pixels, which Pillow does"):
            list(samples)
