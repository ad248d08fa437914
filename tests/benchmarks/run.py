"""All benchmarks by one command: a stage, the models or other subjects that it takes, a work folder.

    python tests/benchmarks/run.py scores --work DIR                       all models
    python tests/benchmarks/run.py ablation minilm magika --work DIR       some of them
    python tests/benchmarks/run.py ablation --work DIR --known --write     write the page of what is known
    python tests/benchmarks/run.py scores --help                           what a stage does, and its options

Everything is kept in DIR: data, models, rows. What was built is built again only when the code behind it has
changed. --write puts the tables between the stage's marks on its page beside this file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from frame import Stage, run

NAMES = """
    scores quick ablation low-bits speed kept-aside versions estimates float-nodes cost-model differential
    providers provider-operators readers arm compilers conformance scale calibration dump-profile counter
    cluster unbreakable object-store large-model large-decoder token-times decoders told
"""
STAGES = NAMES.split()
"""Each is a module of `stages/`, with `_` for `-`, that is imported only when its stage is asked for: each
needs other packages.
"""


def load(name: str) -> tuple[Stage, str]:
    """Return a stage and what its module says of it."""
    module = importlib.import_module(f"stages.{name.replace('-', '_')}")
    stage: Stage = module.STAGE
    return stage, module.__doc__ or ""


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the command line of a stage."""
    stage, about = load(name)
    parser = argparse.ArgumentParser(
        prog=f"run.py {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = f"(all: {', '.join(stage.subjects)})" if stage.subjects else ""
    parser.add_argument("subjects", nargs="*", help=f"models, or what else the stage takes {default}")
    parser.add_argument("--work", type=Path, required=True, help="folder for data, models and rows")
    parser.add_argument("--known", action="store_true", help="measure nothing: show what was kept")
    parser.add_argument(
        "--write", action="store_true", help="write the tables into the page beside this file"
    )
    stage.options(parser)
    return parser


def main(words: Sequence[str]) -> int:
    if not words or words[0] not in STAGES:
        print(f"{__doc__}\nStages: {', '.join(STAGES)}")
        return 0 if words in ([], ["--help"], ["-h"]) else 2
    given = parser_of(words[0]).parse_intermixed_args(words[1:])
    given.work = given.work.resolve()
    run(words[0], load(words[0])[0], given, words)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
