"""The frame of all benchmarks: a stage makes rows of a subject, the rows of all subjects make a page.

A subject is most often a model (`models/`); a stage that needs no model names its own, or has none. Rows are
what JSON can hold: they are kept in the work folder, so that a page is written from all that is known though
one subject alone was measured again. A page is written by hand but for what stands between two marks.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = "QPROF_BENCHMARKS"
"""Environment variable: the work folder, for modules that processes of their own import."""
END = "<!-- end -->"
Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]
"""Subject -> its rows, in the stage's order."""


def no_options(parser: ArgumentParser) -> None:
    """Add nothing to a command line."""


@dataclass(frozen=True)
class Stage:
    """One benchmark.

    Attributes:
        rows: a subject and what the command line says -> its rows, or a mapping as the only row.
        pages: name of a page or picture beside this file, "" for what is printed only -> makes its text of
            all rows.
        subjects: those that are taken where none is named; () for a stage without subjects.
        options: adds to the command line.
    """

    rows: Callable[[str, Namespace], Iterator[Row]]
    pages: Mapping[str, Callable[[Rows], str]]
    subjects: Sequence[str] = ()
    options: Callable[[ArgumentParser], None] = no_options


def run(name: str, stage: Stage, given: Namespace, words: Sequence[str]) -> None:
    """Measure the subjects that were named, keep their rows, print the pages, write them where asked to."""
    os.environ[WORK] = str(given.work)
    kept = given.work / "rows" / f"{name}.json"
    known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    subjects = given.subjects or list(stage.subjects) or [""]
    for subject in () if given.known else subjects:
        try:
            rows = list(stage.rows(subject, given))
        except (ImportError, SystemExit) as problem:
            print(f"{subject}: left out: {problem}", flush=True)
            continue
        known[subject] = {"rows": rows, "made": provenance(words, given.work)}
        write_atomically(kept, json.dumps(known, indent=1).encode())
    order = [*(s for s in stage.subjects if s in known), *(s for s in known if s not in stage.subjects)]
    made = "; ".join(dict.fromkeys(known[subject]["made"] for subject in order))
    for page, text_of in stage.pages.items():
        if page.endswith(".svg") and not given.write:
            continue
        text = text_of({subject: known[subject]["rows"] for subject in order})
        if page.endswith(".svg"):
            write_atomically(HERE / page, text.encode())
            continue
        print(text)
        if given.write and page:
            write_between(HERE / page, name, f"Made by {made}.\n\n{text}")


def provenance(words: Sequence[str], work: Path) -> str:
    """Return the command, the commit, the day, the machine and the runtime's version, as a part of a
    sentence.
    """
    asked = [word.replace(str(work), "DIR") for word in words if word not in ("--write", "--known")]
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    commit = told.stdout.strip() or "an unknown commit"
    return (
        f"`python tests/benchmarks/run.py {shlex.join(asked)}` at {commit}, {date.today()}, "
        f"onnxruntime {version('onnxruntime')}, Python {platform.python_version()}, {processor()}"
    )


def processor() -> str:
    """Return the name of the processor and its number of cores."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def mark(name: str) -> str:
    """Return the line before what a stage writes into a page; `END` stands behind it."""
    return f"<!-- written by run.py {name} -->"


def write_between(page: Path, name: str, text: str) -> None:
    """Put text between a stage's marks on a page.

    Raises:
        ValueError: the page has no such marks.
    """
    before, start, rest = page.read_text(encoding="utf-8").partition(mark(name))
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(
            f"{page.name} has no lines '{mark(name)}' and '{END}': write them where the table goes"
        )
    write_atomically(page, f"{before}{start}\n\n{text.strip()}\n\n{END}{after}".encode())


def write_atomically(file: Path, content: bytes) -> None:
    """Write under a temporary name in the same folder, then rename."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(file.name + ".part")
    temporary.write_bytes(content)
    os.replace(temporary, file)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) if rows else "None."


def number(value: float | None, digits: int, unit: str = "") -> str:
    """Return a figure for a cell; "-" for None."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"
