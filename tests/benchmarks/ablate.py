"""Rules and constants of planning, each switched off or moved in turn: which plans, scores and times change?

    PYTHONPATH=CHECKOUT/.typing python tests/benchmarks/ablate.py --work DIR                  plans alone
    python tests/benchmarks/ablate.py --work DIR --run --rules cheap-nodes,rounded-outputs    models too
    python tests/benchmarks/ablate.py --work DIR --models pose,minilm --constants
    python tests/benchmarks/ablate.py --work DIR --known

The models are those of tests/benchmarks that DIR/models.tsv names, the networks of `same_bytes`, those of
`architectures_torch` in DIR/networks, and random graphs of tests/fuzz. Each is profiled once on its
calibration samples, with check samples beside the profile. A plan with a rule off (`RULES`), or with a
constant 20 % smaller or 25 % larger (--constants: all numbers at module level of the deciding rooms), is held
against the plan with all of them, without notes, reasons and figures of estimates. A rule is not tried on a
model where its functions return what stands in for them, or whose planning does not come by its name.

With --run a plan that changes is taken further, as a user gets it: `quantize --profile` with the rule off,
run on check samples. What is written is scored on samples that no plan was made with, those of the tuning
split where there is one, beside the model that all rules make. Rows are JSON lines, DIR/ablate/MODEL.jsonl;
a second run does what is missing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOMS = ("planning", "noise", "costs", "adjustments", "numerics", "search")
"""Those that decide; constants of `search` matter with --run alone."""
MOVED = (0.8, 1.25)
"""Factors of a constant."""
PACKAGE = "qprof_onnx.quantizer"
MORE = 3
"""Exit code where rules are left: the same call goes on."""


@dataclass(frozen=True)
class Off:
    """What stands in for a function: it returns its first argument, or something that stays the same."""

    result: Any = None
    first: bool = False

    def __call__(self, *values: Any, **_: Any) -> Any:
        return values[0] if self.first else self.result


FIRST, NOTHING, EMPTY, NONE_OF = Off(first=True), Off(), Off({}), Off(())
NO, YES, ZERO = Off(False), Off(True), Off(0)
Places = Mapping[str, Any]
"""Module and name -> what stands in for it. What other modules imported by that name goes with it."""

RULES: Mapping[str, Places] = {
    "noise budget": {
        "planning.noise_budget.NoiseRules.before_steps": EMPTY,
        "planning.noise_budget.NoiseRules.too_noisy": EMPTY,
        "planning.noise_budget.NoiseRules.cheap_first_layers": EMPTY,
    },
    "cheap first layers": {"planning.noise_budget.cheap_nodes": EMPTY},
    "rounded outputs": {"planning.planner.rounded_outputs": EMPTY},
    "steps": {"noise.steps.before_steps": EMPTY, "noise.steps.find_steps": NONE_OF},
    "mask fillers apart": {"noise.mask_fillers.with_fillers_apart": FIRST},
    "mask fillers told by a mask": {"noise.mask_fillers._WithoutFillers.has_mask": YES},
    "mask fillers that survive": {"noise.mask_fillers._survive": NO},
    "mask fillers by row": {"noise.mask_fillers.filler_rows": Off(frozenset({()}))},
    "range down to fillers": {"noise.mask_fillers.reach_below": NOTHING},
    "int8 weights of float nodes": {"planning.hybrid.with_int8_weights": None},
    "int8 weights in the budget": {"planning.noise_budget._noisiest": Off(set())},
    "skips": {"noise.output_limits.computed_part": NOTHING},
    "detections: decisions in them": {"noise.output_kinds.is_decision": NO},
    "equalization of recurrent nodes": {"planning.plan_model.recurrent_equalized": FIRST},
    "equalization": {"planning.plan_model.equalized": FIRST},
    "bias correction": {"planning.plan_model.bias_corrected": FIRST},
    "constant errors": {"noise.constant_errors.without_constant_errors": Off(frozenset())},
    "padding": {"planning.planner.find_padding": Off({})},
    "folded widths": {"planning.planner.find_folds": Off({})},
    "too little saved": {"planning.plan_model.saving_time": FIRST},
    "unprofitable nodes": {"planning.planner.unprofitable_nodes": EMPTY},
    "coarse steps": {"planning.coarse_steps.too_coarse": EMPTY},
    "float spellings": {"planning.facts.PlanningFacts.float_spellings": property(lambda _: {})},
    "float spellings of adds": {"planning.planner._is_bias": NO},
    "chains as one node": {"planning.chains.with_chains": FIRST},
    "chains fused where faster": {"planning.chains._faster_fused": NONE_OF},
    "chains planned apart": {"planning.chains.planned_separately": NO},
    "tables dear to read": {"planning.hybrid.is_dear_to_read": NO},
    "tables of rotations": {"planning.hybrid._multiplies_activations": NO},
    "small recurrent nodes": {"planning.hybrid.MIN_RECURRENT_ELEMENTS": 0},
    "ranges: the function after": {"noise.activation_ranges.MAX_FUNCTION_NODES": 0},
    "ranges: one-sided errors": {"numerics.quantization_noise.ONE_SIDED": 1.0},
    "FLOAT_MARGIN 1": {"costs.float_regions.FLOAT_MARGIN": 1.0},
    "MIN_REGION_SAVED_US 0": {"costs.float_regions.MIN_REGION_SAVED_US": 0.0},
    "UNNOTICED_DB 0": {"planning.noise_budget.UNNOTICED_DB": 0.0},
    "one limit of 20 dB": {
        "noise.output_limits.LIMITS": {
            **dict.fromkeys(("decision", "detections", "embedding", "signal", "values"), (20.0, True)),
            "state": (0.0, False),
        }
    },
    "one limit of 20 dB but for signals": {
        "noise.output_limits.LIMITS": {
            **dict.fromkeys(("decision", "detections", "embedding", "values"), (20.0, True)),
            **{"signal": (38.0, True), "state": (0.0, False)},
        }
    },
    "limits over power": {
        "noise.output_limits.NoiseLimits._varying": Off(1.0),
    },
}
"""Name -> what is switched off, by places in `qprof_onnx.quantizer`."""

RULES_TRIED_AS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "planning.hybrid.with_int8_weights": lambda facts, plan, **_: plan,
}


def constants() -> Iterator[tuple[str, Places]]:
    """Yield a name and places for each number at module level of the deciding rooms, smaller and larger."""
    root = Path(importlib.import_module(PACKAGE).__path__[0])
    for room in ROOMS:
        for file in sorted((root / room).glob("*.py")):
            module = importlib.import_module(f"{PACKAGE}.{room}.{file.stem}")
            for line in ast.parse(file.read_text(encoding="utf-8")).body:
                for name in _assigned(line):
                    value, place = getattr(module, name), f"{room}.{file.stem}.{name}"
                    for factor in MOVED:
                        moved = _times(value, factor)
                        if moved is not None and moved != value:
                            yield f"{name} x {factor:g}", {place: moved}


def _assigned(line: ast.stmt) -> Iterator[str]:
    """Yield the names in capitals that a line gives values to."""
    for target in line.targets if isinstance(line, ast.Assign) else ():
        for one in target.elts if isinstance(target, ast.Tuple) else (target,):
            if isinstance(one, ast.Name) and one.id.isupper():
                yield one.id


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, tuple)):
        return None
    if isinstance(value, tuple):
        found = tuple(_times(part, factor) for part in value)
        return None if None in found else found
    if isinstance(value, int):
        return max(int(math.floor(value * factor) if factor < 1 else math.ceil(value * factor)), 1)
    return value * factor if math.isfinite(value) else None


def _found(place: str) -> tuple[Any, str]:
    """Return the object that holds a name, and the name."""
    *path, name = place.split(".")
    holder: Any = importlib.import_module(f"{PACKAGE}.{path[0]}.{path[1]}")
    for part in path[2:]:
        holder = getattr(holder, part)
    return holder, name


@contextlib.contextmanager
def switched(places: Places, *, exactly: bool = False) -> Iterator[None]:
    """Put what stands in for some names in their place, and in that of every module that imported them."""
    done: list[tuple[Any, str, Any]] = []
    try:
        for place, other in places.items():
            holder, name = _found(place)
            old = vars(holder)[name]
            new = other if exactly else RULES_TRIED_AS_FUNCTIONS.get(place, other)
            holders = [holder]
            if isinstance(holder, ModuleType):
                holders += [
                    module
                    for key, module in list(sys.modules.items())
                    if key.startswith("qprof_onnx.")
                    and module is not holder
                    and vars(module).get(name) is old
                ]
            for one in holders:
                done.append((one, name, old))
                setattr(one, name, new)
        yield
    finally:
        for one, name, old in reversed(done):
            setattr(one, name, old)


@contextlib.contextmanager
def recorded(rules: Iterable[tuple[str, Places]]) -> Iterator[set[str]]:
    """Collect the rules of which some function returns something else than what stands in for it."""
    found: set[str] = set()

    def recorder(rule: str, old: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **more: Any) -> Any:
            result, is_lazy = old(*values, **more), False
            if isinstance(result, Iterator):
                result, is_lazy = tuple(result), True
            if rule not in found and not _same(result, other(*values, **more)):
                found.add(rule)
            return iter(result) if is_lazy else result

        return call

    with contextlib.ExitStack() as stack:
        for rule, places in rules:
            for place, other in places.items():
                holder, name = _found(place)
                old, new = vars(holder)[name], RULES_TRIED_AS_FUNCTIONS.get(place, other)
                if callable(old) and callable(new):
                    stack.enter_context(switched({place: recorder(rule, old, new)}, exactly=True))
                else:
                    found.add(rule)
        yield found


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:
        return False


@contextlib.contextmanager
def names_read() -> Iterator[set[str]]:
    """Collect the global and attribute names in the code of qprof that runs."""
    codes: set[CodeType] = set()
    found: set[str] = set()

    def called(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)
        for code in codes:
            if f"{os.sep}quantizer{os.sep}" in code.co_filename or "qprof_onnx" in code.co_filename:
                found.add(code.co_name)
                found.update(code.co_names)


# Models and their data ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A model, its target, and its samples.

    Attributes:
        name: its own.
        model: the file.
        data: samples to profile: a folder, or feeds.
        target: of the plan.
        profiling: further words of `dump-profile`.
        judged: returns score (None without one), SQNR in dB of the worst output and of all, given the file of
            a quantized model.
    """

    name: str
    model: Path
    data: Any
    target: str
    profiling: tuple[str, ...]
    judged: Callable[[Path], dict[str, Any]]


def subject(name: str, work: Path) -> Subject:
    """Return a subject; its model and samples are made now."""
    kind, _, which = name.partition("/")
    if not which:
        return _benchmark(name, work)
    folder = work / "ablate" / name
    folder.mkdir(parents=True, exist_ok=True)
    target = "onnxruntime-x86"
    if kind == "graphs":
        from stages.told import _graph

        record = _graph(int(which))
        if record is None:
            raise SystemExit(f"{name}: has no nodes")
        path, target = record.path(folder), "onnx"
        known, new = ([feed for feed, _ in record.samples(part)] for part in ("calibration", "evaluation"))
    elif kind == "networks":
        from stages.told import OF_NETWORK, samples_of

        path, target = work / "networks" / which / "model.onnx", "onnx"
        feeds = samples_of(path.parent)
        known, new = feeds[:OF_NETWORK], feeds[OF_NETWORK:]
    else:
        import onnx
        import same_bytes

        path = folder / "model.onnx"
        onnx.save(same_bytes.build(which), path)
        from qprof_onnx.profiles.runtime.states import model_samples
        from qprof_onnx.quantizer.prepare.prepare import open_prepared

        every = [s.arrays for s in model_samples("random:32", open_prepared(path).model)]
        known, new = every[:16], every[16:]
    return Subject(name, path, known, target, (), lambda file: _compared(path, file, new))


def _compared(plain: Path, file: Path, feeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from record import session

    before, after = session(plain, 1), session(file, 1)
    names = [value.name for value in before.get_outputs()]
    wanted_inputs = {value.name for value in before.get_inputs()}
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for every in feeds:
        feed = {key: value for key, value in every.items() if key in wanted_inputs}
        for name, one, other in zip(names, before.run(None, feed), after.run(None, feed), strict=True):
            if one.dtype.kind != "f" or one.shape != other.shape:
                continue
            fine = np.isfinite(one)
            wanted = np.where(fine, one, 0.0).astype(np.float64)
            signal[name] += float((wanted**2).sum())
            noise[name] += float(((wanted - np.where(fine, other, 0.0)) ** 2).sum())
    decibels = {
        name: 10.0 * math.log10(signal[name] / noise[name]) if noise[name] > 0.0 else 200.0
        for name in names
        if signal[name] > 0.0
    }
    return {"score": None, "sqnr": min(decibels.values(), default=200.0)}


def _benchmark(name: str, work: Path) -> Subject:
    import models
    from bootstrap import difference
    from record import judge, make_data

    record = models.load(name)
    data, plain = make_data(record, work), record.path(work / name)
    split = data.tuning or data.evaluation
    kept: list[Any] = []

    def judged(file: Path) -> dict[str, Any]:
        found = judge(record, (plain, file), split)
        sqnr = min(max(found.worst_sqnr, -99.0), 200.0)
        if record.count is None or found.scores is None:
            return {"score": None, "sqnr": sqnr}
        if not kept:
            kept.append(judge(record, (plain, plain), split))
        gap = difference(found.units, kept[0].units, lambda sums: record.score(sums).value)
        return {"score": found.scores.value, "points": [gap.points, gap.low, gap.high], "sqnr": sqnr}

    return Subject(name, plain, data.calibration, "onnxruntime-x86", record.profiling, judged)


def names_of(work: Path, kinds: Iterable[str]) -> list[str]:
    """Return the names of the subjects of some kinds."""
    found: list[str] = []
    for kind in kinds:
        if kind == "models":
            with (work / "models.tsv").open(encoding="utf-8") as lines:
                found += [line.split("\t")[0] for line in lines]
        elif kind == "bytes":
            import same_bytes

            found += [f"bytes/{name}" for name in same_bytes.NETWORKS]
        elif kind == "networks":
            found += [f"networks/{f.parent.name}" for f in sorted(work.glob("networks/*/model.onnx"))]
        else:
            found += [f"graphs/{i}" for i in range(50)]
    return found


# One model ------------------------------------------------------------------------------------------------


class Bench:
    """A subject with its profile, which plans and writes it."""

    def __init__(self, name: str, work: Path) -> None:
        from qprof_onnx.quantizer.api.profiling import profile_model
        from qprof_onnx.quantizer.noise.kept_samples import read_measured
        from qprof_onnx.quantizer.prepare.prepare import open_prepared
        from qprof_onnx.quantizer.targets.loading import load_recipe

        self.subject = subject(name, work)
        self.folder = work / "ablate" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.profile_file = self.folder / "p.yaml"
        if not self.profile_file.exists():
            from click.testing import CliRunner
            from qprof_onnx.cli.main import main as qprof

            if isinstance(self.subject.data, Path):
                words = ["dump-profile", self.subject.model, "--data", self.subject.data]
                words += ["-o", self.profile_file, *self.subject.profiling]
                done = CliRunner().invoke(qprof, [str(word) for word in words])
                if not self.profile_file.exists():
                    raise SystemExit(f"{name}: {done.output[-500:]}")
            else:
                profile_model(self.subject.model, self.subject.data, self.profile_file)
        self.prepared = open_prepared(self.subject.model)
        self.profile, _, _ = read_measured(self.profile_file, self.prepared)
        self.recipe = load_recipe(self.subject.target)

    def plan(self) -> Any:
        from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from

        return plan_from(model_facts(self.prepared, self.profile, self.recipe)).plan

    def final(self) -> dict[str, Any]:
        """Return what a user gets: predicted time, size, score and SQNR of the written model."""
        from qprof_onnx.quantizer.api.from_profile import write_quantized

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "q.onnx"
            start = time.process_time()
            result = write_quantized(self.subject.model, self.profile_file, file, recipe=self.recipe)
            seconds = time.process_time() - start
            predicted = result.plan.origin.time
            checks = [c.value / c.limit for c in result.plan.origin.checks if c.limit]
            return {
                "plan": content(result.plan),
                "time": predicted.planned_us / predicted.float_us if predicted else None,
                "size": sum(f.stat().st_size for f in Path(folder).iterdir()),
                "excess": round(max(checks, default=0.0), 4),
                "seconds": round(seconds, 2),
                "nodes": kinds_of(result.plan),
                **self.subject.judged(file),
            }


def content(plan: Any) -> str:
    """Return digits that stand for a plan without its notes, estimates and reasons."""
    from qprof_onnx.quantizer.plan import store
    from qprof_onnx.quantizer.plan.plan import PlanOrigin

    bare = replace(
        plan,
        findings=(),
        origin=PlanOrigin(""),
        nodes={n: replace(e, because="x") if e.stays_float else e for n, e in plan.nodes.items()},
    )
    return hashlib.sha256(store.dumps(bare).encode()).hexdigest()[:16]


def kinds_of(plan: Any) -> int:
    """Return how many nodes count as quantized."""
    return sum(entry.kind.counts_as_quantized for entry in plan.nodes.values())


def measured(name: str, given: argparse.Namespace) -> None:
    """Write the rows of a model that are missing."""
    file = given.work / "ablate" / f"{name.replace('/', '+')}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    known = [*map(json.loads, file.read_text(encoding="utf-8").splitlines())] if file.exists() else []
    done = {(row["rule"], row["level"]) for row in known}
    changed = {row["rule"] for row in known if row["level"] == "plan" and row["changed"]}
    wanted = list(RULES.items()) if not given.constants else list(constants())
    if given.rules:
        wanted = [(rule, places) for rule, places in wanted if _is_asked(rule, given.rules.split(","))]
    first_level = [rule for rule, _ in wanted if (rule, "plan") not in done]
    second = given.run and (first_level or [r for r in changed if (r, "model") not in done])
    if not first_level and not second:
        return
    bench = Bench(name, given.work)

    def keep(row: dict[str, Any]) -> None:
        known.append(row)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    before, nodes, read = "", 0, set[str]()
    acting = {rule for rule, _ in wanted}
    if first_level:
        for place in (place for _, places in wanted for place in places):
            _found(place)
        start = time.process_time()
        with names_read() as read:
            plan = bench.plan()
        if not given.constants:
            with recorded(wanted) as acting:
                bench.plan()
        before, nodes = content(plan), kinds_of(plan)
        seconds = time.process_time() - start
        print(f"## {name}: {nodes} of {len(plan.nodes)} nodes, {seconds:.1f} s", flush=True)
    end = time.monotonic() + given.seconds
    for rule, places in wanted:
        if (rule, "plan") in done:
            continue
        if time.monotonic() > end:
            sys.exit(MORE)
        row = {"rule": rule, "level": "plan", "model": name, "changed": False, "reached": False}
        if any(place.split(".")[-1] in read for place in places) and rule in acting:
            row["reached"] = True
            try:
                with switched(places):
                    plan = bench.plan()
                row["changed"] = content(plan) != before
                row["nodes"] = [nodes, kinds_of(plan)]
            except Exception as error:
                row |= {"changed": True, "error": f"{type(error).__name__}: {error}"[:200]}
            if row["changed"]:
                changed.add(rule)
                print(name, rule, row.get("nodes"), row.get("error", ""), flush=True)
            gc.collect()
        keep(row)
    if not given.run:
        return
    asked = [(rule, places) for rule, places in wanted if rule in changed and (rule, "model") not in done]
    if asked and ("", "model") not in done:
        end += given.seconds
        keep({"rule": "", "level": "model", "model": name, **bench.final()})
    for rule, places in asked:
        if time.monotonic() > end:
            sys.exit(MORE)
        with switched(places):
            try:
                row = bench.final()
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {error}"[:200]}
        keep({"rule": rule, "level": "model", "model": name, **row})
        print(name, rule, {k: row.get(k) for k in ("time", "score", "sqnr", "nodes", "error")}, flush=True)


def _is_asked(rule: str, words: Sequence[str]) -> bool:
    return any(word.lower() in rule.lower() for word in words)


def page(work: Path) -> str:
    """Return a table: each rule, plans that change, and what becomes of the models."""
    rows = [
        json.loads(line)
        for file in sorted((work / "ablate").glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    first = {row["model"]: row for row in rows if row["rule"] == "" and row["level"] == "model"}
    heads = ("rule", "acts", "plans change", "models change", "dB", "points", "time", "size")
    lines = [f"| {' | '.join(heads)} |", "|---|--:|--:|--:|---|---|---|---|"]
    for rule in dict.fromkeys(row["rule"] for row in rows if row["rule"]):
        plans = [row for row in rows if row["rule"] == rule and row["level"] == "plan"]
        finals = [row for row in rows if row["rule"] == rule and row["level"] == "model"]
        differ = [row for row in finals if row.get("plan") != first[row["model"]]["plan"]]
        cells = [rule, f"{sum(row['reached'] for row in plans)} of {len(plans)}"]
        cells += [str(sum(row["changed"] for row in plans)), f"{len(differ)} of {len(finals)}"]
        limits = {"sqnr": 0.1, "score": 1e-4, "time": 0.002, "size": 0.005}
        cells += [_moved(differ, first, what, least) for what, least in limits.items()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _moved(rows: Sequence[dict[str, Any]], first: Mapping[str, Any], what: str, least: float) -> str:
    down, up = list[str](), list[str]()
    for row in rows:
        one, other = first[row["model"]].get(what), row.get(what)
        if one is None or other is None:
            continue
        change = other / one - 1.0 if what == "size" else other - one
        change *= 100.0 if what == "score" else 1.0
        if abs(other - one) >= least * (one if what == "size" else 1.0):
            (up if change > 0 else down).append(f"{row['model']} {change:+.3g}")
    return "; ".join([*down, "/", *up]) if down or up else "-"


def main() -> None:
    """Run one process for each model, or print what is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="the folder of the benchmarks")
    parser.add_argument("--models", default="", help="names, separated by commas")
    parser.add_argument("--kinds", default="models,bytes,networks,graphs")
    parser.add_argument("--rules", default="", help="words of rules or constants, separated by commas")
    parser.add_argument("--constants", action="store_true", help="move constants instead of rules")
    parser.add_argument("--run", action="store_true", help="write and score models whose plan changes")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="of a model, after which it stops with exit code 3"
    )
    parser.add_argument("--known", action="store_true", help="print what is known")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.known:
        print(page(given.work))
    elif given.one:
        with contextlib.redirect_stderr(None if os.environ.get("ABLATE_VERBOSE") else open(os.devnull, "w")):
            measured(given.one, given)
    else:
        for name in given.models.split(",") if given.models else names_of(given.work, given.kinds.split(",")):
            words = [sys.executable, __file__, *sys.argv[1:], "--one", name]
            done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode == MORE:
                sys.exit(MORE)
            if done.returncode:
                print(f"{name}: failed, {done.stderr[-300:]}", flush=True)


if __name__ == "__main__":
    main()
