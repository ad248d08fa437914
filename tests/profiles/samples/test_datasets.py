"""Data sets on disk: a folder of the library `datasets`, and tar shards in the layout of WebDataset."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError

from ...quantizer.plugins.data.test_text import IDS, saved_tokenizer
from .opening import opened, read, refusal, spec, written

pa = pytest.importorskip("pyarrow", reason="of the extra test-all")
pq = pytest.importorskip("pyarrow.parquet", reason="of the extra test-all")
soundfile = pytest.importorskip("soundfile", reason="of the extra test-all")
Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")

X = spec("x", np.float32, ("N", 3))
PICTURE = spec("image", np.float32, (1, 3, 2, 2))
FEATURES = {
    "image": {"_type": "Image"},
    "text": {"dtype": "string", "_type": "Value"},
    "x": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"},
}


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 2, 3), value, np.uint8)).save(file, "png")
    return file.getvalue()


def table(start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "image": [{"bytes": png(10 * n), "path": None} for n in range(start, stop)],
            "text": ["one two" if n % 2 else "three" for n in range(start, stop)],
            "x": [[float(n), 1.0, 2.0] for n in range(start, stop)],
        }
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Write a data set of five rows as `save_to_disk` of datasets 5.2 does: two files of an arrow stream."""
    folder = tmp_path / "saved"
    folder.mkdir()
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, (start, stop) in zip(names, [(0, 3), (3, 5)], strict=True):
        rows = table(start, stop)
        with pa.ipc.new_stream(folder / name, rows.schema) as stream:
            stream.write_table(rows, max_chunksize=2)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


def shard(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


# ------------------------------------------------------------------------------------ datasets, on disk


def test_columns_of_a_saved_data_set_go_to_the_inputs_of_their_names(saved: Path) -> None:
    samples = read(saved, [X])
    assert [sample.arrays["x"][0, 0] for sample in samples] == [0, 1, 2, 3, 4]
    assert samples[4].name == "data-00001-of-00002.arrow:2"


def test_a_part_of_a_saved_data_set_is_a_part_of_its_rows(saved: Path) -> None:
    samples = opened(saved, [X])
    assert [s.arrays["x"][0, 0] for s in samples.part(1, None, 2)] == [1, 3]
    assert [s.arrays["x"][0, 0] for s in samples.part(2, 4)] == [2, 3]


def test_pictures_of_a_saved_data_set_go_through_a_recipe_for_pictures(saved: Path) -> None:
    samples = read(saved, [PICTURE], "raw")
    assert [sample.arrays["image"].mean() for sample in samples] == [0, 10, 20, 30, 40]


def test_texts_of_a_saved_data_set_go_through_a_tokenizer(saved: Path, tmp_path: Path) -> None:
    samples = read(saved, [IDS], saved_tokenizer(tmp_path))
    assert samples[0].arrays["input_ids"].tolist() == [[2, 6, 3]]


def test_pictures_in_parquet_are_found_by_what_the_file_says_of_its_columns(tmp_path: Path) -> None:
    metadata = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()}
    pq.write_table(table(0, 2).replace_schema_metadata(metadata), tmp_path / "t.parquet")
    assert [s.arrays["image"].mean() for s in read(tmp_path, [PICTURE], "raw")] == [0, 10]


def test_one_split_of_several_has_to_be_named(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    text = refusal(tmp_path, [X])
    assert "holds the splits train, test; name one, as" in text
    assert "/train" in text


def test_a_picture_that_is_only_a_path_is_refused(saved: Path) -> None:
    rows = table(0, 1).set_column(0, "image", pa.array([{"bytes": None, "path": "a.png"}]))
    with pa.ipc.new_stream(saved / "data-00000-of-00002.arrow", rows.schema) as stream:
        stream.write_table(rows)
    text = refusal(saved, [PICTURE], "raw")
    assert "arrow: row 1: column 'image' names the file a.png" in text
    assert "with the bytes of its files in it" in text


@pytest.mark.parametrize("name", ["data-00001-of-00002.arrow", "state.json", "dataset_info.json"])
def test_a_broken_file_of_a_data_set_is_named(saved: Path, name: str) -> None:
    (saved / name).write_bytes(b"nothing of the kind")
    assert name in refusal(saved, [X])


def test_damaged_bytes_of_a_data_set_are_refused_or_are_other_values(saved: Path) -> None:
    path = saved / "data-00000-of-00002.arrow"
    whole = path.read_bytes()
    for position in range(0, len(whole), 61):  # lengths and offsets among them
        path.write_bytes(whole[:position] + b"\xff" * 8 + whole[position + 8 :])
        with suppress(DataError, ConfigError):
            read(saved, [X])


# --------------------------------------------------------------------------------------------- WebDataset


def test_members_of_one_name_are_a_sample(tmp_path: Path) -> None:
    members = {f"{n:03}.{key}": npy([float(n)] * 3) for n in range(4) for key in ("x.npy", "y.npy")}
    source = shard(tmp_path / "a.tar", members)
    y = spec("y", np.float32, ("N", 3))
    samples = read(source, [X, spec("y", np.float64, ("N", 3))])
    assert [sample.name for sample in samples] == [f"a.tar/{n:03}" for n in range(4)]
    assert samples[3].arrays["x"].tolist() == [[3, 3, 3]]
    assert read(source, [y, X])[1].arrays["y"].dtype == np.float32


def test_hidden_members_are_no_samples(tmp_path: Path) -> None:
    members = {"._0.x.npy": b"", "0.x.npy": npy([0, 0, 0]), "d/.1.x.npy": b"", "d/1.x.npy": npy([1, 0, 0])}
    samples = read(shard(tmp_path / "a.tar", members), [X])
    assert [sample.name for sample in samples] == ["a.tar/0", "a.tar/d/1"]


@pytest.mark.parametrize("ending", ["tar", "tgz"])
def test_shards_come_in_natural_order_and_parts_of_them_are_parts_of_the_samples(
    tmp_path: Path, ending: str
) -> None:
    for number in (10, 2):
        shard(tmp_path / f"s{number}.{ending}", {f"{n}.x.npy": npy([number, n, 0]) for n in range(3)})
    samples = opened(tmp_path, [X])
    every = [s.arrays["x"][0].tolist() for s in samples]
    assert every == [[2, 0, 0], [2, 1, 0], [2, 2, 0], [10, 0, 0], [10, 1, 0], [10, 2, 0]]
    for part in (slice(1, 5), slice(4, 6), slice(1, None, 2), slice(2, 6, 3), slice(0, 1)):
        chosen = samples.part(part.start, part.stop, part.step or 1)
        assert [s.arrays["x"][0].tolist() for s in chosen] == every[part]


def test_members_that_are_not_wanted_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = shard(tmp_path / "a.tar", {f"{n}.x.npy": npy([n, 0, 0]) for n in range(9)})
    samples, names, extract = opened(source, [X]), [], tarfile.TarFile.extractfile

    def noted(self: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
        names.append(member.name)
        return extract(self, member)

    monkeypatch.setattr(tarfile.TarFile, "extractfile", noted)
    list(samples.part(3, 5))
    assert names == ["3.x.npy", "4.x.npy"]


def test_an_npz_member_holds_the_inputs_by_their_names(tmp_path: Path) -> None:
    source = shard(tmp_path / "a.tar", {"k.npz": npz(x=np.ones((1, 3), np.float32)), "k.cls": b"3"})
    (sample,) = read(source, [X])
    assert sample.arrays["x"].tolist() == [[1, 1, 1]]


def test_pictures_texts_and_recordings_in_shards_go_through_their_recipes(tmp_path: Path) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.full(8, 0.5), 8000, format="WAV")
    members = {"d/1.png": png(7), "d/1.txt": b"one\n", "d/1.wav": sound.getvalue(), "d/1.json": b'{"x": 1}'}
    source = shard(tmp_path / "a.tar", members)
    assert read(source, [PICTURE], "raw")[0].arrays["image"].mean() == 7
    assert read(source, [IDS], saved_tokenizer(tmp_path))[0].arrays["input_ids"].tolist() == [[2, 4, 3]]
    audio = written(tmp_path, "reader: audio; rate: 8000; window: 4")
    windows = read(source, [spec("signal", np.float32, ("n",))], audio)
    assert [window.name for window in windows] == ["a.tar/d/1[0]", "a.tar/d/1[1]"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"1.x.npy": b"\x93NUMPY"}, "a.tar: 1.x.npy: is broken"),
        ({"1.x.npy": npy(np.array([{}], object))}, "a.tar: 1.x.npy: holds pickled Python objects"),
        ({"1.npz": b"PK"}, "a.tar: 1.npz: is broken"),
        ({"1.json": b"{"}, "a.tar: 1.json: is broken"),
        ({"1.txt": b"\xff"}, "a.tar: 1.txt: line 1: is not UTF-8"),
        ({"1.x.npy": npy([1.0, np.nan, 0])}, "a.tar: 1: column 'x': a value is missing"),
        ({"1.x.npy": npy(["a", "b", "c"])}, "a.tar: 1: column 'x': holds text, expected float32"),
        ({"noending": b""}, "holds no rows"),
        ({"1.cls": b"3"}, "which columns does input 'x'"),
    ],
)
def test_a_broken_member_is_named(tmp_path: Path, members: Mapping[str, bytes], says: str) -> None:
    assert says in refusal(shard(tmp_path / "a.tar", members), [X])


@pytest.mark.parametrize("keep", [0, 100, 600, 1024, 1500, 3000])
def test_a_shard_that_is_cut_off_is_refused(tmp_path: Path, keep: int) -> None:
    path = shard(tmp_path / "a.tar", {f"{n}.x.npy": npy([n, 0.0, 0.0]) for n in range(3)})
    path.write_bytes(path.read_bytes()[:keep])
    assert "a.tar" in refusal(path, [X])
