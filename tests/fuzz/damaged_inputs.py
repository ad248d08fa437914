"""Damaged inputs of every kind, judged by rule: `python tests/fuzz/damaged_inputs.py --seed 1 --count 2000`.

Each case lays out a folder, damages one file in it, and runs the command that reads that file. It may
succeed, and then the result has to be right; or be refused with one clear sentence. Everything else is a
finding: an internal error, no end within a minute, a process that died, a wrong result, an unclear message, a
file left over. The table has a row for each family; the exit code is 1 where there is a finding. The same
seed gives the same cases; `--only "samples:17"` is one of them again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from damage.base import make_base
from damage.cases import Base, Case, Draw, from_json, to_json
from damage.families import FAMILIES
from damage.judge import FINDINGS, OUTCOMES
from damage.running import Result, run_all

KEPT = Path(__file__).parent / "kept"
"""The inputs that once failed; those that take seconds are in `slow`, which the tests leave out. Large models
are named there, and made."""


def drawn(base: Base, seed: int, count: int, families: Collection[str]) -> Iterator[tuple[str, Case]]:
    """Yield cases with their labels, the families mixed."""
    turns = ((number, name) for number in range(-(-count // len(families))) for name in families)
    for number, name in islice(turns, count):
        yield f"{name}:{number}", FAMILIES[name](base, Draw(seed, name, number))


def kept_cases(folder: Path) -> Iterator[tuple[str, Case]]:
    """Yield the cases of a folder that once failed."""
    for path in sorted(folder.glob("*.json")):
        yield f"kept:{path.stem}", from_json(path.read_text(encoding="utf-8"))


def warm_up() -> None:
    """Load what commands load, once, before the processes of the cases are started."""
    import pkgutil
    from importlib import import_module

    for package in ("cli", "profiles", "quantizer"):
        for module in pkgutil.walk_packages(
            import_module(f"qprof_onnx.{package}").__path__, f"qprof_onnx.{package}."
        ):
            if "cluster" not in module.name and ".quantizer.qprof_onnx" not in module.name:
                import_module(module.name)


def table(results: list[Result]) -> str:
    """Return the counts: a row for each family."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result.case.family, Counter())[result.outcome] += 1
        counts[result.case.family]["tried"] += 1
    total = sum(counts.values(), Counter())
    columns = ("tried", *OUTCOMES)
    lines = ["| family | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, row in [*counts.items(), ("all", total)]:
        lines.append(f"| {name} | " + " | ".join(str(row[column]) for column in columns) + " |")
    return "\n".join(lines)


def keep(result: Result, folder: Path) -> None:
    """Write a case, to be run again with --kept."""
    name = result.label.replace(":", "-").replace(" ", "_").replace(",", "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(to_json(result.case), encoding="utf-8")


def main() -> int:
    """Run cases and print what became of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000, help="cases; each family has as many")
    parser.add_argument("--seconds", type=float, default=3600, help="no new case starts after this time")
    parser.add_argument("--processes", type=int, default=2, help="cases that run at the same time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the inputs of findings here")
    parser.add_argument("--only", metavar="FAMILY:NUMBER", help="one case, whose message is printed")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), help="those to take cases of")
    parser.add_argument(
        "--kept", type=Path, nargs="?", const=KEPT, metavar="DIR", help="run the cases that once failed first"
    )
    parser.add_argument("--slow", action="store_true", help="with --kept, also those that take seconds")
    given = parser.parse_args()
    begin, results = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="damaged-base-") as folder:
        base = make_base(Path(folder))
        warm_up()
        for result in run_all(base, _chosen(base, given), given.processes, given.seconds):
            results.append(result)
            if result.outcome in FINDINGS or given.only:
                print(f"{result.outcome}: {result.label}: {result.case.what}", flush=True)
                print(f"    {result.why or result.message.strip()}")
                print(f"    qprof {' '.join(result.case.command)[:300]}", flush=True)
            if result.outcome in FINDINGS and given.keep:
                keep(result, given.keep)
    print(table(results))
    print(f"{len(results)} cases with seed {given.seed} in {time.monotonic() - begin:.0f} s")
    return int(any(result.outcome in FINDINGS for result in results))


def _chosen(base: Base, given: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    if given.kept and not given.only:
        yield from kept_cases(given.kept)
        if given.slow:
            yield from kept_cases(given.kept / "slow")
    if not given.only:
        yield from drawn(base, given.seed, given.count, given.families)
        return
    family, _, number = given.only.partition(":")
    if family == "kept":
        yield from (pair for pair in kept_cases(given.kept or KEPT) if pair[0] == given.only)
    else:
        yield given.only, FAMILIES[family](base, Draw(given.seed, family, int(number)))


if __name__ == "__main__":
    sys.exit(main())
