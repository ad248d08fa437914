"""The frame of all benchmarks: a stage makes rows of a subject, the rows of all subjects make tables.

A subject is most often a model (`models/`); a stage that needs no model names its own, or has none. Rows are
what JSON can hold: they are kept in the work folder, so that a run goes on where it was stopped, and a table
is written from all that is known. A table stands in a page of the checkout between two marks, the first with
its name and the digest of what is between them: nobody edits it by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
WORK = "QPROF_BENCHMARKS"
"""Environment variable: the work folder, for modules that processes of their own import."""
BLOCK = re.compile(r"<!-- table ([a-z-]+)(?: ([0-9a-f]{12}))? -->\n(.*?)<!-- end -->", re.DOTALL)
"""A table of a page: its name, the digest of what stands in it, and that."""
PARTS = ("peers", "build", "score", "time")
"""What a run may do: other tools' models, qprof's, scores on the evaluation split, times."""
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]
"""Subject -> its rows, in the stage's order."""


def no_options(parser: ArgumentParser) -> None:
    """Add nothing to a command line."""


@dataclass(frozen=True)
class Stage:
    """One benchmark.

    Attributes:
        rows: a subject and the command line -> its rows, none where only parts were asked for that make no
            row; what was measured before is not measured again.
        tables: name of a table -> makes its text of all rows. One that stands on no page is printed only.
        subjects: those that are taken where none is named; () for a stage without subjects.
        options: adds to the command line.
    """

    rows: Callable[[str, Namespace], Iterator[Row]]
    tables: Mapping[str, Callable[[Rows], str]]
    subjects: Sequence[str] = ()
    options: Callable[[ArgumentParser], None] = no_options


def run(name: str, stage: Stage, given: Namespace) -> None:
    """Measure the subjects that were named, keep their rows, print the tables, write them where asked to.

    Subjects run side by side with --jobs, but where something is timed.
    """
    os.environ[WORK] = str(given.work)
    kept = given.work / "rows" / f"{name}.json"
    known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    subjects = () if given.known else given.subjects or list(stage.subjects) or [""]

    def measured(subject: str) -> list[Row] | str:
        try:
            return list(stage.rows(subject, given))
        except (ImportError, SystemExit) as problem:
            return f"left out: {problem}"

    with ThreadPoolExecutor(1 if "time" in given.parts else given.jobs) as pool:
        for subject, rows in zip(subjects, pool.map(measured, subjects), strict=True):
            if isinstance(rows, str):
                print(f"{subject}: {rows}", flush=True)
                known.pop(subject, None)
            elif rows:
                print(f"{subject}: {len(rows)} rows", flush=True)
                known[subject] = {"rows": rows, "made": provenance()}
            write_atomically(kept, json.dumps(known, indent=1).encode())
    order = [*(s for s in stage.subjects if s in known), *(s for s in known if s not in stage.subjects)]
    if not order:
        return
    made = "; ".join(sorted({known[subject]["made"] for subject in order}))
    for table_name, text_of in stage.tables.items():
        text = text_of({subject: known[subject]["rows"] for subject in order})
        text += f"\n\nMade by `run.py {name}`: {made}."
        print(f"\n== {table_name}\n\n{text}")
        for page in pages_with(table_name) if given.write else ():
            write_block(page, table_name, text)


@cache
def commit() -> str:
    """Return the commit of the qprof that runs, `-dirty` where its checkout has changes."""
    spec = find_spec("qprof_onnx.cli")
    folder = Path(next(iter(spec.submodule_search_locations or ()))).resolve() if spec else HERE
    words = ["git", "describe", "--always", "--abbrev=8", "--dirty"]
    told = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "an unknown commit"


def provenance() -> str:
    """Return the versions, the day and the machine, as a part of a sentence."""
    return (
        f"qprof at {commit()}, onnxruntime {version('onnxruntime')}, Python {platform.python_version()}, "
        f"{date.today()}, {processor()}"
    )


def processor() -> str:
    """Return the name of the processor and its number of cores."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    vnni = any("vnni" in line for line in lines if line.startswith("flags"))
    name = names[0] if names else platform.machine()
    return f"{name} {'with' if vnni else 'without'} VNNI, {os.cpu_count()} cores"


def pages() -> Iterator[Path]:
    """Yield the pages that may have tables."""
    yield CHECKOUT / "README.md"
    yield HERE / "README.md"
    yield from sorted((CHECKOUT / "docs").rglob("*.md"))


def pages_with(table_name: str) -> list[Path]:
    """Return the pages that a table stands on."""
    return [
        page
        for page in pages()
        if any(found[1] == table_name for found in BLOCK.finditer(page.read_text(encoding="utf-8")))
    ]


def digest(text: str) -> str:
    """Return the digest of the text of a table."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def write_block(page: Path, name: str, text: str) -> None:
    """Put the text of a table between its marks on a page."""

    def block(found: re.Match[str]) -> str:
        if found[1] != name:
            return found[0]
        return f"<!-- table {name} {digest(text)} -->\n\n{text.strip()}\n\n<!-- end -->"

    write_atomically(page, BLOCK.sub(block, page.read_text(encoding="utf-8")).encode())


def write_atomically(file: Path, content: bytes) -> None:
    """Write under a temporary name in the same folder, then rename."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(file.name + ".part")
    temporary.write_bytes(content)
    os.replace(temporary, file)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, ["---"] * len(head), *rows))


def number(value: float | None, digits: int, unit: str = "") -> str:
    """Return a figure for a cell; "-" for None."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"
