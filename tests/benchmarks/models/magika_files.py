"""magika's classifier: the first and last kilobyte of a file -> which of 214 types it is."""

from __future__ import annotations

import bz2
import configparser
import email.message
import gzip
import html
import importlib.util
import io
import json
import lzma
import marshal
import pickle
import pydoc
import sqlite3
import sysconfig
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import magika
import numpy as np
import text
import yaml
from magika.types import Seekable
from PIL import Image
from record import Feed, Outputs, RealModel, package_folder

FOLDER = ("models", "standard_v3_3")
EACH = 12  # files of one type

# Where real files come from: (type, root, pattern). Roots are installed packages; "std" is Python's library.
FOUND = (
    ("python", "std", "*.py"),
    ("python", "std", "asyncio/*.py"),
    ("python", "scipy", "stats/*.py"),
    ("c", "include", "**/*.h"),
    ("c", "numpy", "**/include/numpy/*.h"),
    ("cpp", "onnx", "defs/**/*.cc"),
    ("cpp", "scipy", "**/*.hpp"),
    ("elf", "stdplat", "lib-dynload/*.so"),
    ("elf", "numpy", "**/*.so"),
    ("ttf", "matplotlib", "mpl-data/fonts/ttf/*.ttf"),
    ("otf", "font_source_sans_pro", "files/*.otf"),
    ("png", "matplotlib", "mpl-data/images/*.png"),
    ("svg", "matplotlib", "mpl-data/images/*.svg"),
    ("pdf", "matplotlib", "mpl-data/images/*.pdf"),
    ("csv", "sklearn", "datasets/data/*.csv"),
    ("csv", "matplotlib", "mpl-data/sample_data/**/*.csv"),
    ("rst", "sklearn", "datasets/descr/*.rst"),
    ("css", "sklearn", "**/*.css"),
    ("javascript", "sklearn", "**/*.js"),
    ("javascript", "matplotlib", "backends/web_backend/**/*.js"),
    ("onnx", "onnx", "backend/test/data/light/*.onnx"),
    ("npy", "numpy", "**/*.npy"),
    ("fortran", "numpy", "f2py/tests/src/**/*.f90"),
    ("powershell", "std", "venv/scripts/**/*.ps1"),
    ("batch", "std", "idlelib/*.bat"),
)


def _root(name: str) -> Path:
    paths = {"std": "stdlib", "stdplat": "platstdlib", "include": "include"}
    if name in paths:
        return Path(sysconfig.get_path(paths[name]))
    return package_folder(name)


def _found() -> Iterator[tuple[str, bytes]]:
    for kind, root, pattern in FOUND:
        files = sorted(f for f in _root(root).glob(pattern) if f.is_file() and f.stat().st_size >= 200)
        step = max(1, len(files) // EACH)
        for file in files[::step][:EACH]:
            yield kind, file.read_bytes()


def _modules() -> list[tuple[str, str]]:
    files = sorted(_root("std").glob("[a-z]*.py"))
    return [(f.stem, f.read_text(encoding="utf-8")) for f in files if f.stat().st_size > 3000][
        10 : 10 + EACH * 2 : 2
    ]


def _archive(name: str, source: str, pack: str) -> bytes:
    file = io.BytesIO()
    content = source.encode()
    if pack == "tar":
        with tarfile.open(fileobj=file, mode="w") as tar:
            entry = tarfile.TarInfo(name + ".py")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    else:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo(name + ".py"), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _records(source: str) -> list[dict[str, object]]:
    """Facts about a source file: something real to write as JSON, YAML, XML and so on."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return [
        {
            "line": number,
            "kind": line.split(" ")[0][:12],
            "length": len(line),
            "text": line[:60],
            "indented": number % 3 == 0,
        }
        for number, line in enumerate(lines[:40])
    ]


def _table(rows: Sequence[dict[str, object]]) -> bytes:
    base = sqlite3.connect(":memory:")
    base.execute("create table lines (line integer primary key, kind text, length integer, text text)")
    base.executemany("insert into lines values (:line, :kind, :length, :text)", rows)
    base.commit()
    return base.serialize()


def _statements(name: str, rows: Sequence[dict[str, object]]) -> str:
    columns = "line INTEGER PRIMARY KEY,\n  kind VARCHAR(12) NOT NULL,\n  length INTEGER"
    head = f"CREATE TABLE {name} (\n  {columns}\n);\n\n"
    kinds = [str(row["kind"]).replace("'", "''") for row in rows]
    inserts = [
        f"INSERT INTO {name} (line, kind, length) VALUES ({row['line']}, '{kind}', {row['length']});"
        for row, kind in zip(rows, kinds, strict=True)
    ]
    return (
        head + "\n".join(inserts) + f"\n\nSELECT kind, COUNT(*) FROM {name} GROUP BY kind ORDER BY 2 DESC;\n"
    )


def _settings(rows: Sequence[dict[str, object]]) -> str:
    parser = configparser.ConfigParser(interpolation=None)
    for row in rows[:12]:
        parser[f"section {row['line']}"] = {
            "length": str(row["length"]),
            "enabled": str(row["indented"]).lower(),
        }
    file = io.StringIO()
    parser.write(file)
    return file.getvalue()


def _xml(name: str, rows: Sequence[dict[str, object]]) -> str:
    items = "\n".join(
        f'  <line number="{r["line"]}"><text>{html.escape(str(r["text"]))}</text></line>' for r in rows
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<module name="{name}">\n{items}\n</module>\n'


def _markdown(name: str, source: str, rows: Sequence[dict[str, object]]) -> str:
    table = "\n".join(f"| {r['line']} | {r['length']} |" for r in rows[:8])
    return (
        f"# {name}\n\nThe module **{name}**, see [its documentation](docs/{name}.md).\n\n## Use\n\n"
        f"```python\nimport {name}\n```\n\n- small\n- *tested*\n\n| line | length |\n|---|---|\n{table}\n\n"
        f"## Source\n\n```python\n{source[:600]}\n```\n"
    )


def _message(name: str, source: str) -> bytes:
    message = email.message.EmailMessage()
    message["From"], message["To"] = "Ann <ann@example.org>", "Ben <ben@example.org>"
    message["Subject"], message["Date"] = f"Notes on {name}", "Mon, 03 Mar 2025 10:00:00 +0000"
    message["Message-ID"] = f"<{name}@example.org>"
    message.set_content(source[:800])
    return message.as_bytes()


def _notebook(name: str, source: str) -> str:
    cell = {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {},
        "outputs": [],
        "source": source[:500].splitlines(True),
    }
    title = {"cell_type": "markdown", "metadata": {}, "source": [f"# {name}"]}
    return json.dumps({"cells": [title, cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _sound(index: int) -> bytes:
    file = io.BytesIO()
    rng = np.random.default_rng(index)
    tone = np.sin(np.arange(8000) * rng.uniform(0.02, 0.3)) * 8000 + rng.normal(0, 300, 8000)
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 16000, 0, "NONE", "not compressed"))
        out.writeframes(tone.astype("<i2").tobytes())
    return file.getvalue()


def _picture(index: int, kind: str) -> bytes:
    rng = np.random.default_rng(100 + index)
    picture = Image.fromarray(text.line_image(rng, text.line_text(rng, 0), text.CALIBRATION_FONTS))
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def _array(source: str, compressed: bool) -> bytes:
    file = io.BytesIO()
    values = np.frombuffer(source.encode()[:4000], np.uint8).astype(np.float32)
    if compressed:
        np.savez(file, values=values, count=np.int64(values.size))
    else:
        np.save(file, values)
    return file.getvalue()


def _made() -> Iterator[tuple[str, bytes]]:
    for index, (name, source) in enumerate(_modules()):
        rows = _records(source)
        written: dict[str, bytes | str | Callable[[], bytes]] = {
            "json": json.dumps(rows, indent=2),
            "jsonl": "\n".join(map(json.dumps, rows)) + "\n",
            "yaml": yaml.safe_dump({"module": name, "lines": rows}, sort_keys=False),
            "toml": f'title = "{name}"\n'
            + "".join(f"\n[lines.l{r['line']}]\nlength = {r['length']}\nkind = 'x'\n" for r in rows),
            "tsv": "line\tkind\tlength\n"
            + "".join(f"{r['line']}\t{r['kind']}\t{r['length']}\n" for r in rows),
            "ini": _settings(rows),
            "xml": _xml(name, rows),
            "sql": _statements(name, rows),
            "markdown": _markdown(name, source, rows),
            "ipynb": _notebook(name, source),
            "html": pydoc.HTMLDoc().page(name, pydoc.html.preformat(source[:3000])),
            "eml": _message(name, source),
            "sqlite": _table(rows),
            "txt": " ".join(text.sentences()[index * 9 : index * 9 + 9]),
            "pythonbytecode": importlib.util.MAGIC_NUMBER
            + bytes(12)
            + marshal.dumps(compile(source, name + ".py", "exec")),
            "pickle": pickle.dumps(rows, protocol=4),
            "gzip": gzip.compress(source.encode(), mtime=0),
            "bzip": bz2.compress(source.encode()),
            "xz": lzma.compress(source.encode()),
            "zip": _archive(name, source, "zip"),
            "tar": _archive(name, source, "tar"),
            "wav": _sound(index),
            "jpeg": _picture(index, "JPEG"),
            "gif": _picture(index, "GIF"),
            "bmp": _picture(index, "BMP"),
            "tiff": _picture(index, "TIFF"),
            "webp": _picture(index, "WEBP"),
            "npz": _array(source, True),
            "npy": _array(source, False),
        }
        for kind, content in written.items():
            yield kind, content.encode() if isinstance(content, str) else content


def _files(part: str) -> Iterator[tuple[str, bytes]]:
    """Of each five files one is for calibration, one for tuning, three for evaluation."""
    chosen = sorted([*_found(), *_made()], key=lambda pair: pair[0])
    parts = ("calibration", "tuning", "evaluation", "evaluation", "evaluation")
    return (pair for index, pair in enumerate(chosen) if parts[index % 5] == part)


def _feed(content: bytes) -> Feed:
    """magika's own features: 1024 bytes from both ends."""
    features = magika.Magika._extract_features_from_seekable(
        Seekable(io.BytesIO(content)),
        1024,
        0,
        1024,
        padding_token=256,
        block_size=4096,
        use_inputs_at_offsets=False,
    )
    return {"bytes": np.array([[*features.beg, *features.end]], np.int32)}


def path(folder: Path) -> Path:
    return package_folder("magika").joinpath(*FOLDER, "model.onnx")


def _contents(split: str) -> Iterator[tuple[Feed, str]]:
    chosen = list(_files(split))
    if split == "calibration":
        chosen = chosen[:: max(1, len(chosen) // 64)][:64]
    return ((_feed(content), kind) for kind, content in chosen)


def count(outputs: Iterable[Outputs], labels: Sequence[str]) -> np.ndarray:
    """Whether each file's type has the highest probability."""
    config = path(Path()).with_name("config.min.json")
    types = json.loads(config.read_text(encoding="utf-8"))["target_labels_space"]
    pairs = zip(outputs, labels, strict=True)
    return np.array([(types[int(values[0][0].argmax())] == kind, 1) for values, kind in pairs])


MODEL = RealModel(
    name="magika",
    source="magika",
    kind="classifier of bytes",
    task="324 files of 45 types, from Python packages or made from them: share whose type is told right",
    path=path,
    samples=_contents,
    splits={name: (name,) for name in ("calibration", "tuning", "evaluation")},
    count=count,
    helpers=("text",),
)
