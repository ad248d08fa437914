"""Whole files: complete or as before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError, PlanError, ProfileError
from qprof_onnx.profiles.base.output_files import (
    read_text,
    remove_leftovers,
    replacing_together,
    write_atomically,
)


def test_text_and_bytes_are_written_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "é\n")
    write_atomically(tmp_path / "b", b"\x00\r\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9\n"
    assert (tmp_path / "b").read_bytes() == b"\x00\r\n"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError, SystemExit])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    path = tmp_path / "out.onnx"
    path.write_text("old")

    def interrupted() -> None:
        with replacing_together() as batch:
            temporary = batch.add(path)
            assert temporary.parent.parent == tmp_path
            assert temporary.suffix == ".onnx"
            temporary.write_text("half")
            raise interruption

    with pytest.raises(interruption):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.onnx"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: is not a regular file; name a file to write"):
        write_atomically(tmp_path / "pipe", "text")


def test_the_mode_of_a_file_that_is_replaced_is_kept(tmp_path: Path) -> None:
    (tmp_path / "private").touch(mode=0o600)
    for name in ("private", "new"):
        write_atomically(tmp_path / name, "text")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~umask


def test_the_temporary_file_is_where_nobody_else_can_lay_a_link(tmp_path: Path) -> None:
    with replacing_together() as batch, replacing_together() as other:
        one, two = batch.add(tmp_path / "out"), other.add(tmp_path / "out")
        assert one != two
        assert one.parent.stat().st_mode & 0o777 == 0o700
        one.touch()
        two.touch()


def test_files_appear_together_the_first_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(Path(b).name), replace(a, b)))
    with replacing_together() as batch:
        batch.add(tmp_path / "model").touch()
        batch.add(tmp_path / "plan").touch()
        assert not (tmp_path / "plan").exists()
    assert order == ["plan", "model"]


def write_three(folder: Path) -> None:
    with replacing_together() as batch:
        batch.add(folder / "model").write_text("new model")
        write_atomically(folder / "new", "new file", batch)
        write_atomically(folder / "plan", "new plan", batch)


@pytest.mark.parametrize("links", [True, False])
def test_if_one_cannot_appear_all_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    (tmp_path / "plan").write_text("old plan")
    replace = os.replace

    def failing(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "model":
            raise PermissionError(1, "Operation not permitted", source)
        replace(source, target)

    def no_links(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "replace", failing)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(ConfigError, match=r"model: cannot be written: Operation not permitted; choose"):
        write_three(tmp_path)
    assert os.listdir(tmp_path) == ["plan"]
    assert (tmp_path / "plan").read_text() == "old plan"


def test_a_folder_that_is_missing_is_made_and_goes_again_where_nothing_is_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "deep" / "out.yaml", "text")
    assert (tmp_path / "new" / "deep" / "out.yaml").read_text() == "text"
    with pytest.raises(ConfigError, match="cannot be written"), replacing_together() as batch:
        batch.add(tmp_path / "other" / "out.yaml")  # nothing is written
    assert not (tmp_path / "other").exists()


def test_a_folder_cannot_be_written_over(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; name a file"):
        write_atomically(tmp_path, "text")


def test_a_missing_file_is_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"x\.yaml: cannot be read: No such file or directory; check the path"
    ):
        read_text(tmp_path / "x.yaml", PlanError)


def test_a_binary_file_is_refused_with_its_first_wrong_byte(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"ab\xff")
    with pytest.raises(ProfileError, match=r"not UTF-8 text \(byte 2 is 0xff\)"):
        read_text(tmp_path / "x", ProfileError)


def test_a_byte_order_mark_and_windows_line_ends_are_taken_off(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_text(tmp_path / "x", PlanError) == "a: 1\nb: 2\n"


def test_the_size_of_an_output_has_the_files_beside_it(tmp_path: Path) -> None:
    with replacing_together() as batch:
        model, other = batch.add(tmp_path / "m.onnx"), batch.add(tmp_path / "plan.yaml")
        model.write_bytes(b"123")
        other.write_bytes(b"1")
        model.with_name("m.data").write_bytes(b"12345")
        batch.add_beside(model, "m.data")
        assert batch.size(model) == 8


def test_a_file_that_is_added_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    with replacing_together() as batch:
        first = batch.add(tmp_path / "m.onnx")
        first.write_bytes(b"1")
        first.with_name("old.data").write_bytes(b"1")
        batch.add_beside(first, "old.data")
        batch.add(tmp_path / "plan.yaml").write_bytes(b"1")
        second = batch.add(tmp_path / "m.onnx")
        second.write_bytes(b"2")
        assert not first.exists()
    content = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert content == {"m.onnx": b"2", "plan.yaml": b"1"}


KILLED = """import os, sys
from qprof_onnx.profiles.base.output_files import replacing_together
with replacing_together() as batch:
    batch.add(sys.argv[1]).write_text("copy")
    os._exit(9)"""


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_that_is_in_use(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], check=False)
    (left,) = tmp_path.iterdir()
    (tmp_path / f"{left.name[:-8]}00000000").mkdir()  # of another system
    (tmp_path / ".qprof-cache").mkdir()
    with replacing_together() as batch:
        written = batch.add(tmp_path / "a")
        written.touch()
        write_atomically(tmp_path / "b", "text")
        remove_leftovers(tmp_path)
        assert written.exists()
    names = {path.name for path in tmp_path.iterdir()}
    stays = {left.name} if os.name == "nt" else set()  # which has no such locks
    assert names == {"a", "b", f"{left.name[:-8]}00000000", ".qprof-cache"} | stays


KILLED_AT_WORK = """import os
from qprof_onnx.profiles.base.output_files import temporary_folder
with temporary_folder() as folder:
    (folder / "model.onnx").write_text("copy")
    os._exit(9)"""


def test_the_next_run_removes_the_temporary_folders_of_killed_ones_and_no_other(tmp_path: Path) -> None:
    variables, is_windows = {**os.environ, "TMPDIR": str(tmp_path)}, os.name == "nt"
    (tmp_path / "qprof-notes").mkdir()
    for end in ("os._exit(9)", "print(os.listdir(folder.parent))"):
        code = KILLED_AT_WORK.replace("os._exit(9)", end)
        run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, check=False)
    assert run.stdout.decode().count("qprof-") == 2 + is_windows  # the notes, and its own
    assert len(list(tmp_path.iterdir())) == 1 + is_windows  # which has no such locks


def test_a_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], check=False)
    monkeypatch.setattr(os, "geteuid", lambda: -1, raising=False)
    remove_leftovers(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
