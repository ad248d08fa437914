"""Whole files: complete or as before."""

import os
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.atomic_files import read_text, replacing, write_atomically
from qprof_onnx.profiles.base.errors import ConfigError, PlanError, ProfileError


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
        with replacing(path) as temporary:
            assert temporary.parent == tmp_path
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


def test_what_is_no_regular_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(path, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert path.is_fifo()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no/out\.yaml: cannot be written: No such file or directory; choose"
    ):
        write_atomically(tmp_path / "no" / "out.yaml", "text")


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
