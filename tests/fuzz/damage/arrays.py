"""Families of arrays: samples in .npz files, folders of samples, labels."""

from __future__ import annotations

import io
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import numpy_helper

from damage.base import DUMP, ROWS
from damage.cases import Base, Case, Content, Draw, whole

GOOD = np.random.default_rng(3).normal(0, 1, (ROWS, 1, 6, 6)).astype(np.float32)
MAGIC = b"\x93NUMPY\x01\x00"


class Payload:
    """What runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("owned", "w")


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)  # type: ignore[arg-type]
    return file.getvalue()


def npz(members: dict[str, bytes], **kind: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def header(text: str, data: bytes = GOOD.tobytes(), size: int | None = None) -> bytes:
    """Return an .npy file with any header."""
    padded = text.encode("latin-1") + b"\n"
    return MAGIC + struct.pack("<H", (len(padded) if size is None else size) & 0xFFFF) + padded + data


def bomb(size: int, shape: tuple[int, ...]) -> bytes:
    """Return an .npz whose array is far larger than the file."""
    head = header(str({"descr": "<f4", "fortran_order": False, "shape": shape}), b"")
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(head)
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return file.getvalue()


HEADERS = (
    *(
        f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
        for descr, order, shape in (
            ("'<f4'", "False", "(True, 1, 6, 6)"),
            ("'<f4'", "False", "(-8, 1, 6, 6)"),
            ("'<f4'", "False", "(8, 1, 6, 6"),
            ("'<f4'", "False", "(10000000000000, 1, 6, 6)"),
            ("'<f4'", "False", "(1 << 70,)"),
            ("'<f4'", "False", "[8, 1, 6, 6]"),
            ("'<f4'", "False", "(8.0, 1, 6, 6)"),
            ("'<f4'", "3", "(8, 1, 6, 6)"),
            ("'<f4'", "True", "(8, 1, 6, 6)"),
            ("'>f4'", "False", "(8, 1, 6, 6)"),
            ("'|O'", "False", "(8, 1, 6, 6)"),
            ("'|V4'", "False", "(8, 1, 6, 6)"),
            ("'<U1'", "False", "(8, 1, 6, 6)"),
            ("'<M8[s]'", "False", "(4, 1, 6, 6)"),
            ("'<f2'", "False", "(16, 1, 6, 6)"),
            ("'<c8'", "False", "(4, 1, 6, 6)"),
            ("'f4,f4'", "False", "(4, 1, 6, 6)"),
            ("[('a', '<f4')]", "False", "(8, 1, 6, 6)"),
            ("__import__('os').system('touch owned')", "False", "(8, 1, 6, 6)"),
            ("'x'", "False", "()"),
            ("''", "False", "(8, 1, 6, 6)"),
            ("None", "None", "None"),
        )
    ),
    "",
    "{}",
    "[" * 2000,
    "(" * 60_000,
    "x" * 60_000,
    "{'descr': '<f4'}",
    "{1: 2}",
    "\x00",
    "'a' 'b'",
    "9" * 5000,
)


def _arrays() -> dict[str, Callable[[], object]]:
    flat = GOOD.reshape(ROWS, 36)
    odd = GOOD.copy()
    odd[0, 0, 0, 0] = np.nan
    endless = GOOD.copy()
    endless[0, 0, 0, 0] = np.inf
    return {
        "float64": lambda: GOOD.astype(np.float64),
        "float16": lambda: GOOD.astype(np.float16),
        "int64": lambda: GOOD.astype(np.int64),
        "bool": lambda: GOOD > 0,
        "complex": lambda: GOOD.astype(np.complex64),
        "text": lambda: GOOD.astype("U3"),
        "big endian": lambda: GOOD.astype(">f4"),
        "dates": lambda: np.zeros((ROWS, 1, 6, 6), "M8[s]"),
        "records": lambda: np.zeros((ROWS, 1, 6, 6), [("a", "<f4")]),
        "objects": lambda: np.array([Payload()], object),
        "rank 2": lambda: flat,
        "rank 0": lambda: np.float32(3),
        "rank 32": lambda: np.zeros((1,) * 32, np.float32),
        "another size": lambda: np.zeros((ROWS, 1, 5, 6), np.float32),
        "channels last": lambda: np.moveaxis(GOOD, 1, 3),
        "no rows": lambda: GOOD[:0],
        "one row": lambda: GOOD[:1],
        "Fortran order": lambda: np.asfortranarray(GOOD),
        "NaN": lambda: odd,
        "Inf": lambda: endless,
        "denormal": lambda: np.full_like(GOOD, 1e-42),
        "huge": lambda: np.full_like(GOOD, 3e38),
        "one value": lambda: np.full_like(GOOD, 0.25),
    }


def _members(rng: random.Random) -> dict[str, Callable[[], bytes]]:
    """Return archives that are odd as archives."""
    good = npy(GOOD)
    whole_file = npz({"x.npy": good})
    at = rng.randrange(len(whole_file))
    encrypted = bytearray(whole_file)
    encrypted[6] |= 1
    return {
        "no member": lambda: npz({}),
        "another name": lambda: npz({"z.npy": good}),
        "one too many": lambda: npz({"x.npy": good, "z.npy": good}),
        "not an array": lambda: npz({"x.npy": b"hello"}),
        "empty member": lambda: npz({"x.npy": b""}),
        "a name without .npy": lambda: npz({"x": good}),
        "a name that leads out": lambda: npz({"../x.npy": good}),
        "a name with control characters": lambda: npz({"\x1b[31mx.npy": good}),
        "a name of 60,000 characters": lambda: npz({"x" * 60_000: good}),
        "a folder": lambda: npz({"x.npy/": b""}),
        "compressed": lambda: npz({"x.npy": good}, compression=zipfile.ZIP_DEFLATED),
        "by bzip2": lambda: npz({"x.npy": good}, compression=zipfile.ZIP_BZIP2),
        "by lzma": lambda: npz({"x.npy": good}, compression=zipfile.ZIP_LZMA),
        "a bomb of 3 GB": lambda: bomb(3 << 30, (3 << 20, 1, 16, 16)),
        "a bomb of 500 MB": lambda: bomb(500 << 20, (125 << 20,)),
        "claims 10^13 rows": lambda: npz({"x.npy": header(HEADERS[3], b"")}),
        "a pickle": lambda: npz({"x.npy": pickle.dumps(Payload())}),
        "an array of pickles": lambda: npz({"x.npy": npy(np.array([Payload()], object))}),
        "encrypted": lambda: bytes(encrypted),
        "cut off": lambda: whole_file[:at],
        "one bit": lambda: (
            whole_file[:at] + bytes([whole_file[at] ^ 1 << rng.randrange(8)]) + whole_file[at + 1 :]
        ),
        "one bit of a compressed one": lambda: _flipped(
            npz({"x.npy": good}, compression=zipfile.ZIP_DEFLATED), rng
        ),
        "rubbish before": lambda: b"rubbish" * 9 + whole_file,
        "rubbish after": lambda: whole_file + b"rubbish" * 9,
        "the array alone": lambda: good,
        "empty": lambda: b"",
        "text": lambda: b"1 2 3\n",
        "a pickle alone": lambda: pickle.dumps(Payload()),
        "version 9": lambda: npz({"x.npy": b"\x93NUMPY\x09\x00" + good[8:]}),
        "data cut off": lambda: npz({"x.npy": good[:-7]}),
        "data too long": lambda: npz({"x.npy": good + bytes(7)}),
    }


def _flipped(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


RUN = (*DUMP, "-o", "out.yaml")


def samples(base: Base, draw: Draw) -> Case:
    """One of the samples is odd: its archive, its header or its array."""
    made = _members(draw.rng)
    kinds = [
        *made,
        *made,
        *(f"array: {name}" for name in _arrays()),
        *(f"header {i}" for i in range(len(HEADERS))),
    ]
    what = draw.pick(kinds)
    if what in made:
        data = made[what]()
    elif what.startswith("array"):
        data = npz({"x.npy": npy(_arrays()[what.removeprefix("array: ")]())})
    else:
        data = npz({"x.npy": header(HEADERS[int(what.split()[1])])})
        what = f"{what}: {HEADERS[int(what.split()[1])][:80]}"
    name = f"cal/{draw.rng.choice('0123')}.npz"
    command = (
        *RUN,
        *draw.rng.choice(((), (), ("--by-row",), ("--memory-limit", "2G"))),
    )
    return Case(
        "samples",
        what,
        command,
        {name: whole(data)},
        names=(name.removeprefix("cal/"), "cal", "model.onnx"),
        outputs=("out.yaml",),
        check="ranges_of_outputs",
    )


def folders(base: Base, draw: Draw) -> Case:
    """Folders of samples: other layouts, mixed ones, links."""
    good = npy(GOOD)
    tensor = numpy_helper.from_array(GOOD, "x").SerializeToString()
    layouts: dict[str, tuple[dict[str, bytes], dict[str, str]]] = {
        "npy": ({"s/0.npy": good, "s/1.npy": good}, {}),
        "pb": ({"s/test_data_set_0/input_0.pb": tensor}, {}),
        "pb alone": ({"s/input_0.pb": tensor}, {}),
        "pb of a second input": ({"s/input_0.pb": tensor, "s/input_1.pb": tensor}, {}),
        "pb with a large number": ({f"s/input_{'9' * 50}.pb": tensor}, {}),
        "pb and npy": ({"s/input_0.pb": tensor, "s/1.npy": good}, {}),
        "set without inputs": ({"s/test_data_set_0/output_0.pb": tensor}, {}),
        "an empty set": ({"s/test_data_set_0/a.txt": b""}, {}),
        "broken pb": ({"s/input_0.pb": tensor[:50]}, {}),
        "pb with one bit flipped": ({"s/input_0.pb": _flipped(tensor[:40], draw.rng) + tensor[40:]}, {}),
        "pb without a type": (
            {
                "s/input_0.pb": numpy_helper.from_array(GOOD)
                .SerializeToString()
                .replace(b"\x10\x01", b"\x10\x63", 1)
            },
            {},
        ),
        "npy with one bit flipped": ({"s/0.npy": _flipped(good[:128], draw.rng) + good[128:]}, {}),
        "npy with a header": ({"s/0.npy": header(draw.pick(HEADERS, "header"))}, {}),
        "npy and more": ({"s/0.npy": good + b"x"}, {}),
        "npy of pickles": ({"s/0.npy": npy(np.array([Payload()], object))}, {}),
        "npy cut off": ({"s/0.npy": good[: draw.rng.randrange(len(good))]}, {}),
        "a broken link": ({"s/0.npy": good}, {"s/1.npy": "nowhere"}),
        "a link to itself": ({"s/0.npy": good}, {"s/1.npy": "1.npy"}),
        "a link to a device": ({"s/0.npy": good}, {"s/1.npy": "/dev/null"}),
        "a link to a folder": ({"s/0.npy": good}, {"s/1.npy": "../cal"}),
        "a linked folder": ({"t/0.npy": good}, {"s": "t"}),
        "a folder that links to itself": ({}, {"s": "s"}),
        "hidden files alone": ({"s/.0.npy": good}, {}),
        "other files": ({"s/a.txt": b"x"}, {}),
        "a file": ({"s": good}, {}),
        "names of odd characters": ({"s/\x1b[31m.npy": good[:100], "s/ü \n.npy": good}, {}),
        "no such folder": ({}, {}),
    }
    what = draw.pick(list(layouts))
    files, links = layouts[what]
    contents: dict[str, Content] = {name: whole(data) for name, data in files.items()}
    command = ("dump-profile", "model.onnx", "--data", "s", "-o", "out.yaml")
    return Case(
        "folders of samples", what, command, contents, links=links, names=("s/", "s:"), outputs=("out.yaml",)
    )


def labels(base: Base, draw: Draw) -> Case:
    """Labels as text and as .npy."""
    right = [int(line) for line in base.text("labels.txt").split()]
    what, name, data, sure = draw.pick(_label_files(right, draw.rng))
    evaluate = (
        "evaluate",
        "model.onnx",
        "int8.onnx",
        "--data",
        "cal",
        "--no-latency",
        "--json",
        "--labels",
        name,
    )
    case = Case("labels", what, evaluate, {name: whole(data)}, names=(name,), check="accuracy", wants=sure)
    if draw.rng.random() < 0.15:
        from damage.base import TUNE

        command = tuple(name if part == "labels.txt" else part for part in TUNE)
        return replace(case, command=(*command, "-o", "out.onnx"), outputs=("out.onnx",), check="")
    return case


def _label_files(right: list[int], rng: random.Random) -> list[tuple[str, str, bytes, str]]:
    """Return what is done, the file, its bytes, and what has to become of it ("" for either)."""
    text = "".join(f"{label}\n" for label in right).encode()
    rows = text.split()
    at = rng.randrange(len(rows))
    files: list[tuple[str, str, bytes, str]] = []
    words = {
        "4": "refused",
        "-1": "refused",
        "101": "refused",
        str(2**63): "refused",
        "9" * 5000: "refused",
        "nan": "refused",
    }
    words |= {
        "1.5": "refused",
        "x": "refused",
        "\x1b[31m": "refused",
        "1 2": "refused",
        "1_0": "refused",
        "0x1": "refused",
    }
    words |= {
        "1e0": "refused",
        "True": "refused",
        "\u0663": "",
        "+1": "",
        "01": "",
        "": "refused",
        "#1": "refused",
        "1,": "refused",
    }
    for word, sure in words.items():
        changed = [*rows[:at], word.encode(), *rows[at + 1 :]]
        files.append((f"a label is {word[:20]!r}", "l.txt", b"\n".join(changed) + b"\n", sure))
    files += [
        ("as they are", "l.txt", text, "done"),
        ("empty lines", "l.txt", text.replace(b"\n", b"\n\n"), "done"),
        ("Windows line ends", "l.txt", text.replace(b"\n", b"\r\n"), "done"),
        ("no line end", "l.txt", text.rstrip(), "done"),
        ("byte order mark", "l.txt", b"\xef\xbb\xbf" + text, ""),
        ("one too few", "l.txt", b"\n".join(rows[1:]), "refused"),
        ("one too many", "l.txt", text + b"1\n", "refused"),
        ("empty", "l.txt", b"", "refused"),
        ("one line", "l.txt", b" ".join(rows), "refused"),
        ("not UTF-8", "l.txt", text + b"\xff\n", "refused"),
        ("UTF-16", "l.txt", text.decode().encode("utf-16"), "refused"),
        ("NUL", "l.txt", text + b"\0\n", "refused"),
        (
            "all one higher than there are classes",
            "l.txt",
            b"\n".join(str(label + 4).encode() for label in right),
            "refused",
        ),
        ("a long line", "l.txt", b"1" * 3_000_000, "refused"),
        ("an npy as text", "l.txt", npy(np.array(right)), "refused"),
        ("text as npy", "l.npy", text, "refused"),
        ("empty npy", "l.npy", b"", "refused"),
        ("broken zip", "l.npy", b"PK\x03\x04" + bytes(50), "refused"),
        ("npz", "l.npy", npz({"x.npy": npy(np.array(right))}), "refused"),
        ("pickle", "l.npy", pickle.dumps(Payload()), "refused"),
        ("npy cut off", "l.npy", npy(np.array(right))[: rng.randrange(300)], "refused"),
        ("npy flipped", "l.npy", _flipped(npy(np.array(right))[:128], rng) + npy(np.array(right))[128:], ""),
    ]
    files += [
        (f"header {text[:60]}", "l.npy", header(text, np.array(right, "<i8").tobytes()), "refused")
        for text in HEADERS
    ]
    shape = f"({len(right)},)"
    odd = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}"
    files += [(f"header claims {shape}", "l.npy", header(odd, np.array(right, "<i8").tobytes()), "done")]
    for dtype, sure in (
        ("i1", "done"),
        ("u8", "done"),
        (">i4", "done"),
        ("f8", "refused"),
        ("?", "refused"),
        ("U3", "refused"),
        ("c8", "refused"),
        ("M8[s]", "refused"),
        ("O", "refused"),
    ):
        files.append((f"dtype {dtype}", "l.npy", npy(np.array(right).astype(dtype)), sure))
    big = np.array(right, np.uint64)
    big[at] = 2**64 - 1
    files.append(("uint64 that wraps to -1", "l.npy", npy(big), "refused"))
    files.append(("two dimensions", "l.npy", npy(np.array(right).reshape(-1, 1)), "refused"))
    files.append(("no dimension", "l.npy", npy(np.int64(3)), "refused"))
    files.append(("no labels", "l.npy", npy(np.array([], np.int64)), "refused"))
    return files
