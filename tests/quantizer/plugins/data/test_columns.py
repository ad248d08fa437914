"""Pictures, texts and recordings in the columns of a Parquet file, as those of Hugging Face's `datasets`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from ....profiles.samples.opening import read, refusal, spec, written
from .test_text import IDS, saved_tokenizer

pa = pytest.importorskip("pyarrow", reason="of the extra test-all")
pq = pytest.importorskip("pyarrow.parquet", reason="of the extra test-all")
soundfile = pytest.importorskip("soundfile", reason="of the extra test-all")
Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")

PICTURE = spec("image", np.float32, (1, 3, 2, 2))


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 2, 3), value, np.uint8)).save(file, "png")
    return file.getvalue()


def saved(folder: Path, **columns: object) -> Path:
    pq.write_table(pa.table({"image": pictures(2), **columns}), folder / "t.parquet")
    return folder / "t.parquet"


def pictures(rows: int) -> list[dict[str, object]]:
    return [{"bytes": png(10 * n), "path": None} for n in range(rows)]


def test_pictures_go_through_a_recipe_for_pictures(tmp_path: Path) -> None:
    samples = read(saved(tmp_path, text=["a", "b"]), [PICTURE], "raw")
    assert [sample.arrays["image"].mean() for sample in samples] == [0, 10]


def test_texts_go_through_a_tokenizer(tmp_path: Path) -> None:
    samples = read(saved(tmp_path, text=["three", "one two"]), [IDS], saved_tokenizer(tmp_path))
    assert samples[0].arrays["input_ids"].tolist() == [[2, 6, 3]]


def test_recordings_are_cut_into_windows(tmp_path: Path) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.full(8, 0.5), 8000, format="WAV")
    source = saved(tmp_path, audio=[{"bytes": sound.getvalue(), "path": None}] * 2)
    recipe = written(tmp_path, "reader: audio; rate: 8000; window: 4; column: audio")
    windows = read(source, [spec("signal", np.float32, ("n",))], recipe)
    assert [window.name for window in windows] == [f"t.parquet:{row}[{n}]" for row in (1, 2) for n in (0, 1)]


def test_the_column_is_asked_for_where_several_hold_files(tmp_path: Path) -> None:
    text = refusal(saved(tmp_path, mask=pictures(2)), [PICTURE], "raw")
    assert "which column contains the image? Name it in the recipe, as column: image" in text


def test_a_picture_that_is_only_a_path_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path, image=[{"bytes": None, "path": "a.png"}] * 2)
    text = refusal(source, [PICTURE], written(tmp_path, "base: raw; column: image"))
    assert "t.parquet: row 1: column 'image' names the file a.png" in text
    assert "with the bytes of its files in it" in text
