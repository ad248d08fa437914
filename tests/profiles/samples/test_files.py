"""Files of folders and of stores: names, order, what cannot be read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.samples import storage as files
from qprof_onnx.profiles.samples.storage import data_files, holds, is_url, shown_location
from qprof_onnx.quantizer.plugins.data import remote_storage as remote

fsspec = pytest.importorskip("fsspec", reason="of the extra test-all")

NAMES = ["10.txt", "2.txt", "a/1.txt", ".hidden/3.txt", "b.md"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    return tmp_path


@pytest.fixture
def store() -> Iterator[str]:
    store = fsspec.filesystem("memory")
    for name in NAMES:
        store.pipe(f"/set/{name}", f"text of {name}".encode())
    yield "memory://set"
    store.rm("/set", recursive=True)


def test_a_store_has_the_names_and_contents_of_its_local_copy(folder: Path, store: str) -> None:
    for deep in (False, True):
        here, there = data_files(str(folder), (".txt",), deep=deep), data_files(store, (".txt",), deep=deep)
        assert [f.name for f in here] == [f.name for f in there] == ["2.txt", "10.txt", "a/1.txt"][: 2 + deep]
        assert [f.read() for f in here] == [f.read() for f in there]
        with here[0].open() as one, there[0].open() as other:
            assert one.read() == other.read()


def test_a_file_is_the_only_one_of_itself(folder: Path, store: str) -> None:
    for source in (str(folder), f"file://{folder}", store):
        (file,) = data_files(f"{source}/b.md")
        assert (file.name, file.text()) == ("b.md", "text of b.md")


def test_what_a_source_holds_is_told_by_endings(folder: Path, store: str) -> None:
    for source in (str(folder), store):
        assert holds(source, (".txt",), deep=True)
        assert holds(source, (".md",))
        assert not holds(source, (".wav",))
        assert holds(f"{source}/2.txt", (".txt",))
        assert not holds(f"{source}/none", (".txt",))


def test_a_folder_of_folders_holds_no_files_itself(store: str) -> None:
    fsspec.filesystem("memory").pipe("/set/deep/a/1.txt", b"1")
    assert not holds(f"{store}/deep", (".txt",))
    assert holds(f"{store}/deep", (".txt",), deep=True)
    assert data_files(f"{store}/deep", (".txt",)) == ()


LINKS = {
    "to itself": {"loop": "."},
    "two to itself": {"loop": ".", "again": "."},
    "up from below": {"a/up": ".."},
    "two folders into each other": {"a/b": "../c", "c/a": "../a"},
    "to a folder beside it": {"0": "a"},
    "to a link to a folder": {"0": "1", "1": "a"},
    "out and back": {"out": "../outside"},
}


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_a_folder_that_links_lead_to_again_is_read_once(tmp_path: Path, links: dict[str, str]) -> None:
    source, own = tmp_path / "set", ["2.txt", "10.txt", "a/1.txt", "c/3.txt"]
    for name in own:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "4.txt").write_text("out")
    (tmp_path / "outside" / "back").symlink_to(source)
    for name, target in links.items():
        (source / name).symlink_to(target)
    found = [file.name for file in data_files(str(source), (".txt",), deep=True)]
    assert found == own + ["out/4.txt"] * ("out" in links)
    assert holds(str(source), (".txt",), deep=True)
    assert not holds(str(source), (".wav",), deep=True)


def test_a_folder_is_read_under_its_own_name_and_else_under_the_first(tmp_path: Path) -> None:
    for name in ("set/z", "elsewhere/inner"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.txt").write_text(name)
    for name, target in {"a": "z", "l10": "../elsewhere", "l2": "../elsewhere"}.items():
        (tmp_path / "set" / name).symlink_to(target)
    found = [file.name for file in data_files(str(tmp_path / "set"), deep=True)]
    assert found == ["l2/inner/1.txt", "z/1.txt"]


def test_each_name_of_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("one")
    (tmp_path / "2.txt").symlink_to("1.txt")
    (tmp_path / "3.txt").symlink_to("3.txt")
    assert [file.name for file in data_files(str(tmp_path), deep=True)] == ["1.txt", "2.txt", "3.txt"]
    with pytest.raises(DataError, match=r"3\.txt: cannot be read"):
        data_files(str(tmp_path))[2].read()


def test_an_object_is_read_in_blocks_from_any_position(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BLOCK_BYTES", 4)
    with data_files(f"{store}/10.txt")[0].open() as file:
        assert file.read(2) == b"te"
        assert file.seek(-6, io.SEEK_END) == 8
        assert file.read() == b"10.txt"
        assert file.seek(5) == 5
        assert file.read(2) == b"of"


def test_a_server_without_ranges_or_sizes_is_read_whole(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = type(fsspec.filesystem("memory"))
    whole = system.cat_file
    monkeypatch.setattr(system, "cat_file", lambda self, path, start=None, end=None: whole(self, path))
    (file,) = data_files(f"{store}/10.txt")
    with file.open() as stream:
        stream.seek(8)
        assert stream.read(2) == b"10"
    monkeypatch.setattr(system, "size", lambda self, path: None)
    with file.open() as stream:
        assert stream.read() == b"text of 10.txt"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://user:secret@host:8/a/b.tar?token=secret#x", "https://host:8/a/b.tar"),
        ("s3://bucket/a b/", "s3://bucket/a b/"),
        ("file:///a%20b", "/a b"),
        ("relative/path", "relative/path"),
        ("s3://key:sec/ret@bucket/a", "s3://bucket/a"),
        ("https://token@host/a", "https://host/a"),
        ("abfs://container@account/a", "abfs://container@account/a"),
        ("hf://datasets/me/data@main/a", "hf://datasets/me/data@main/a"),
    ],
)
def test_what_is_secret_of_a_url_is_not_shown(location: str, shown: str) -> None:
    assert shown_location(location) == shown


def test_an_url_is_told_from_a_path() -> None:
    assert is_url("s3://bucket")
    assert not is_url("C:\\data")


def test_the_query_of_a_url_stays_with_its_files() -> None:
    assert files.joined("https://host/a/?sig=1", "b.txt").location == "https://host/a/b.txt?sig=1"


def refusal(source: str) -> str:
    with pytest.raises(DataError) as caught:
        [file.read() for file in data_files(source)]
    return str(caught.value)


def test_what_is_not_there_is_named(tmp_path: Path, store: str) -> None:
    assert f"{tmp_path}/no: no such file or folder" in refusal(f"{tmp_path}/no")
    assert "memory://none: no such object" in refusal("memory://none")
    (file,) = data_files(f"{store}/b.md")
    fsspec.filesystem("memory").rm("/set/b.md")
    with pytest.raises(DataError, match=r"memory://set/b.md: is not there, or not any more; check"):
        file.read()
    fsspec.filesystem("memory").pipe("/set/b.md", b"")


def test_a_protocol_without_its_library_names_what_to_install() -> None:
    assert "adl://x: needs the Python package for adl://; install it with: pip install adlfs" in refusal(
        "adl://x"
    )
    assert "Protocol not known: nothing" in refusal("nothing://x")


class Failing:
    """Raises some errors, one after the other, before it answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self, *_: object, **__: object) -> bytes:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return b"at last"


class StatusError(Exception):
    """An error of an HTTP library."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status} for https://user:secret@host/x?sig=secret")
        self.status = status


PASSING = [ConnectionResetError("reset"), TimeoutError(), StatusError(503), OSError("?")]


@pytest.mark.parametrize("error", PASSING)
def test_a_request_that_fails_for_a_while_is_made_again(
    store: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    failing = Failing(error, error)
    (file,) = data_files(f"{store}/b.md")
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", failing)
    assert file.read() == b"at last"
    assert failing.calls == 3


@pytest.mark.parametrize(
    ("error", "calls", "says"),
    [
        (ConnectionResetError("reset"), 5, "cannot be read: reset; 5 attempts or 30 s were not enough"),
        (PermissionError("denied"), 1, "denied; check the credentials of the store"),
        (StatusError(403), 1, "status 403 for https://host/x;"),
    ],
)
def test_a_request_that_goes_on_failing_is_given_up(
    store: str, monkeypatch: pytest.MonkeyPatch, error: Exception, calls: int, says: str
) -> None:
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    (file,) = data_files(f"{store}/b.md")
    failing = Failing(*[error] * 9)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", failing)
    with pytest.raises(DataError) as caught:
        file.read()
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)
    assert failing.calls == calls
