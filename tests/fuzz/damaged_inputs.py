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
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from damage import arrays, calls, documents, exchange, models
from damage.base import make_base
from damage.cases import Base, Case, Draw, Family, from_json, to_json
from damage.judge import FINDINGS, OUTCOMES
from damage.running import Result, reproduction, run_all

FAMILIES: Mapping[str, tuple[Family, float]] = {
    "ONNX, bytes": (models.model_bytes, 0.17),
    "ONNX, structure": (models.model_structure, 0.17),
    "ONNX, odd": (models.odd_models, 0.05),
    "profiles": (documents.profiles, 0.08),
    "glow profiles": (documents.glow_profiles, 0.05),
    "plans": (documents.plans, 0.08),
    "foreign ranges": (exchange.ranges, 0.06),
    "foreign parameters": (exchange.parameters, 0.08),
    "joined models": (exchange.joined, 0.03),
    "configurations": (documents.configurations, 0.1),
    "samples": (arrays.samples, 0.06),
    "folders of samples": (arrays.folders, 0.02),
    "labels": (arrays.labels, 0.05),
    "checkpoints": (documents.checkpoints, 0.06),
    "values of options": (calls.options, 0.1),
    "module:function": (calls.functions, 0.03),
}
"""Each family with its share of the cases."""

REAL = 40
"""One case in so many runs through the real command line, the others where the modules are loaded already."""
KEPT = Path(__file__).parent / "kept"
"""The inputs that once failed; those that take seconds are in `slow`, which the tests leave out. Large models
are named there, and made."""


def drawn(base: Base, seed: int, count: int, families: Collection[str]) -> Iterator[tuple[str, Case]]:
    """Yield cases with their labels, the families mixed."""
    total = sum(FAMILIES[name][1] for name in families)
    quotas = {name: max(1, round(FAMILIES[name][1] / total * count)) for name in families}
    turns = sorted(
        (number / quota, name, number) for name, quota in quotas.items() for number in range(quota)
    )
    for turn, (_, name, number) in enumerate(turns):
        yield f"{name}:{number}{'*' if turn % REAL == REAL - 1 else ''}", drawn_one(base, seed, name, number)


def drawn_one(base: Base, seed: int, name: str, number: int) -> Case:
    """Return one case."""
    return FAMILIES[name][0](base, Draw(seed, name, number))


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
    """Write what is needed to run a case again."""
    name = result.label.replace(":", "-").replace(" ", "_").replace(",", "").rstrip("*")
    folder.mkdir(parents=True, exist_ok=True)
    text = to_json(result.case)
    if len(text) < 1 << 20:
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    reproduction(result.case, folder / name)


def main() -> int:
    """Run cases and print what became of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000, help="cases; each family has its share")
    parser.add_argument("--seconds", type=float, default=3600, help="no new case starts after this time")
    parser.add_argument("--processes", type=int, default=2, help="cases that run at the same time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the inputs of findings here")
    parser.add_argument(
        "--only", metavar="FAMILY[:NUMBER]", help="one family, or one case, whose message is printed"
    )
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
            if result.outcome in FINDINGS or (given.only and ":" in given.only):
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
    elif number:
        yield given.only, drawn_one(base, given.seed, family, int(number.rstrip("*")))
    else:
        yield from (
            (f"{family}:{number}", drawn_one(base, given.seed, family, number))
            for number in range(given.count)
        )


if __name__ == "__main__":
    sys.exit(main())
