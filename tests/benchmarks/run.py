"""All benchmarks by one command: a stage, the models or other subjects that it takes, a work folder.

    python tests/benchmarks/run.py pages --work DIR --write              every table of every page
    python tests/benchmarks/run.py pages --work DIR --parts peers,build,score --jobs 2   all but times, before
    python tests/benchmarks/run.py models minilm magika --work DIR       some models of one stage
    python tests/benchmarks/run.py models --work DIR --known --write     measure nothing, write what is known
    python tests/benchmarks/run.py quick --help                          what a stage does, and its options

Everything is kept in DIR: data, models, rows. A run that was stopped goes on where it was; what was built is
built again where the code behind it has changed, what was scored and timed where the bytes have. --write puts
each table between its marks in README.md and docs/.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from frame import PARTS, Stage, run

OF_PAGES = ("models", "settings")
"""Stages whose tables stand on pages; `pages` runs them one after the other."""
INSTRUMENTS = ("told", "quick", "constants")
"""Stages that are used while qprof is made."""
STAGES = (*OF_PAGES, *INSTRUMENTS)
"""Each is a module of `stages/`, imported only when its stage is asked for: each needs other packages."""


def load(name: str) -> tuple[Stage, str]:
    """Return a stage and what its module says of it."""
    module = importlib.import_module(f"stages.{name}")
    stage: Stage = module.STAGE
    return stage, module.__doc__ or ""


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the command line of a stage, or of `pages`."""
    stage, about = (None, f"All of {', '.join(OF_PAGES)}.") if name == "pages" else load(name)
    parser = argparse.ArgumentParser(
        prog=f"run.py {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if stage:
        default = f" (all: {', '.join(stage.subjects)})" if stage.subjects else ""
        parser.add_argument("subjects", nargs="*", help=f"models, or what else the stage takes{default}")
        stage.options(parser)
    parser.add_argument("--work", type=Path, required=True, help="folder for data, models and rows")
    parser.add_argument("--known", action="store_true", help="measure nothing: show what was kept")
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    parser.add_argument(
        "--parts",
        type=lambda words: words.split(","),
        default=list(PARTS),
        help=f"some of {','.join(PARTS)}: a part that is left out is as it was kept",
    )
    parser.add_argument("--peer-python", type=Path, help="the Python of an environment with nncf")
    parser.add_argument("--jobs", type=int, default=1, help="subjects at once, where nothing is timed")
    parser.add_argument("--again", action="store_true", help="time again what was timed")
    return parser


def main(words: Sequence[str]) -> int:
    if not words or words[0] not in (*STAGES, "pages"):
        print(f"{__doc__}\nStages: pages, {', '.join(STAGES)}")
        return 0 if words in ([], ["--help"], ["-h"]) else 2
    for name in OF_PAGES if words[0] == "pages" else words[:1]:
        stage, _ = load(name)
        given = parser_of(words[0]).parse_intermixed_args(words[1:])
        given.work = given.work.resolve()
        if words[0] == "pages":
            defaults = parser_of(name).parse_intermixed_args(["--work", str(given.work)])
            given = argparse.Namespace(**{**vars(defaults), **vars(given)})
        run(name, stage, given)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
