"""Random float graphs through all of qprof, for as long as one likes: see `graph_check` for what is held.

    python tests/fuzz/random_graphs.py --seed 1 --count 2000 --seconds 3600 --processes 2 [--keep DIR]

Graph number n of seed s is always the same. Each is checked in a process of its own choosing among a few,
which is killed when it takes too long. With --keep, each finding's model, samples and settings are written to
a folder. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graph_builder import SAMPLES, model_of
from graph_check import EVERYTHING, Case, Outcome, check_case, recipe_of, run
from graph_recipes import random_graph
from qprof_onnx.profiles.base.errors import ConfigError

SECONDS_FOR_ONE = 60.0
"""After which a graph counts as hung."""

TARGETS = ("onnxruntime-x86",) * 5 + (EVERYTHING,) * 5
TARGETS += ("onnx",) * 4 + (
    "onnxruntime-arm",
    "openvino",
    "tensorrt",
    "qnn",
    "glow",
    "migraphx",
)

CHOICES: dict[str, tuple[Any, ...]] = {
    "schema": ("asymmetric", "asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"),
    "weight_schema": ("symmetric", "symmetric", "symmetric", "asymmetric", "symmetric-power2"),
    "calibrator": ("mse", "minmax", "minmax", "percentile", "kl"),
    "granularity": ("per-channel", "per-channel", "per-tensor"),
    "activation_type": ("uint8", "uint8", "int8", "uint16"),
    "weight_type": ("int8", "int8", "int8", "uint8", "int4", "uint4"),
    "equalization": ("auto", "free", "off"),
    "bias_correction": ("auto", "off"),
    "rounding": ("nearest", "nearest", "gptq", "gptaq"),
    "mode": ("static", "static", "static", "static", "static", "dynamic", "weight-only", "auto"),
    "min_output_sqnr": (0.0, 0.0, 0.0, 18.0),
    "block_size": (0, 0, 16),
    "keep_float": ((), (), ("MatMul",), ("Relu",)),
    "keep_16bit": ((), (), (), ("Add",), ("Conv",)),
}

FACTS: dict[str, tuple[Any, ...]] = {
    "scale_sharing": ("auto", "unified", "separate"),
    "inter_layer": ("quantized", "quantized", "quantized", "float"),
    "weight_only_activations": ("int8", "float"),
    "lookup_tables": (
        {"*": "portable"},
        {"*": "portable", "Sigmoid": "portable", "Tanh": "portable"},
        {"Sigmoid": "runtime", "Tanh": "runtime", "HardSwish": "saturating"},
        {"Sigmoid": "runtime", "Tanh": "sigmoid", "Chain": "separate"},
    ),
}
"""Facts about the runtime in place of the target's own."""


def random_case(seed: int, number: int) -> Case | None:
    """Return one case; None for a graph without nodes."""
    rng = np.random.default_rng([seed, number])
    builder, outputs = random_graph(rng)
    if not outputs:
        return None
    model = model_of(builder.graph(outputs), builder.opset)
    samples = [{name: builder.values[name][i] for name in builder.inputs} for i in range(SAMPLES)]
    try:
        run(model, samples[:1])
    except Exception:
        return None
    there = {node.op_type for node in model.graph.node}
    for _ in range(50):
        settings, facts = (
            {
                name: words[int(rng.integers(len(words)))]
                for name, words in choices.items()
                if rng.random() < 0.35
            }
            for choices in (CHOICES, FACTS)
        )
        for name in ("keep_float", "keep_16bit"):
            settings[name] = tuple(t for t in settings.get(name, ()) if t in there and t != "Relu")
        settings.setdefault("min_output_sqnr", 0.0)
        target = TARGETS[int(rng.integers(len(TARGETS)))]
        case = Case(model, samples, settings, target, bool(rng.random() < 0.6), facts=facts)
        forms = [form for form in case.forms if goes(case, form)]
        if forms:
            return replace(case, forms=forms)
    return Case(model, samples)


def goes(case: Case, form: str) -> bool:
    """Whether the settings go together on the target."""
    try:
        recipe_of(case, form)
    except ConfigError:
        return False
    return True


@dataclass
class Counts:
    """What was found so far."""

    graphs: int = 0
    forms: int = 0
    nodes: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    operators: set[str] = field(default_factory=set)
    noisier: int = 0

    def table(self, seconds: float) -> str:
        """Return the counts for people."""
        rows = [("graphs", self.graphs), ("forms run", self.forms), ("nodes quantized", self.nodes)]
        rows.append(("operators quantized", len(self.operators)))
        kinds = ("wrong", "crashed", "hung", "leftover", "bytes", "refused")
        rows += [(f"{kind} (findings)", self.findings[kind]) for kind in kinds]
        rows.append(("outputs 10 dB noisier than estimated", self.noisier))
        rows.append(("refused as listed", sum(self.refused.values())))
        lines = [f"{name:40} {count}" for name, count in rows]
        lines += [f"    {count} x {text}" for text, count in self.refused.most_common()]
        return "\n".join([*lines, f"{'seconds':40} {seconds:.0f}"])


def _work(pipe: Connection, seed: int) -> None:
    """Check the graphs whose numbers come through a pipe."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    while (number := pipe.recv()) is not None:
        with tempfile.TemporaryDirectory(prefix="qprof-fuzz-") as folder:
            tempfile.tempdir = folder
            try:
                case = random_case(seed, number)
                outcome = Outcome() if case is None else check_case(case, Path(folder))
            finally:
                tempfile.tempdir = None
        pipe.send((number, outcome))


class Worker:
    """A process that checks one graph at a time."""

    def __init__(self, seed: int) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, seed), daemon=True)
        self.process.start()
        other.close()
        self.number, self.since = -1, 0.0

    def give(self, number: int) -> None:
        """Let it check a graph."""
        self.number, self.since = number, time.monotonic()
        self.pipe.send(number)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def keep(folder: Path, seed: int, number: int, outcome: Outcome) -> None:
    """Write what reproduces a finding."""
    case = random_case(seed, number)
    if case is None:
        return
    into = folder / f"{seed}-{number}"
    into.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, into / "model.onnx")
    for index, sample in enumerate(case.samples):
        np.savez(into / f"{index}.npz", **sample)
    about = {
        "settings": case.settings,
        "facts": case.facts,
        "target": case.target,
        "start_everywhere": case.start_everywhere,
    }
    about |= {"forms": list(case.forms), "findings": outcome.findings}
    (into / "case.json").write_text(json.dumps(about, indent=1))


def search(given: argparse.Namespace) -> Counts:
    """Check graphs until there are enough or time is over."""
    start, counts = time.monotonic(), Counts()
    numbers = iter(range(given.first, given.first + given.count))
    workers = [Worker(given.seed) for _ in range(given.processes)]
    busy: list[Worker] = []

    def next_one(worker: Worker) -> None:
        number = next(numbers, None) if time.monotonic() - start < given.seconds else None
        if number is not None:
            worker.give(number)
            busy.append(worker)

    def note(number: int, outcome: Outcome) -> None:
        counts.graphs += 1
        counts.forms += outcome.forms
        counts.nodes += outcome.quantized
        counts.operators |= outcome.operators
        counts.refused.update(outcome.refused)
        counts.noisier += len(outcome.noisier)
        for text in outcome.noisier if given.noisier else ():
            print(f"{given.seed}-{number} noisier than estimated: {text}", flush=True)
        for kind, text in outcome.findings:
            counts.findings[kind] += 1
            print(f"{given.seed}-{number} {kind}: {text}", flush=True)
        if outcome.findings and given.keep is not None:
            keep(given.keep, given.seed, number, outcome)

    for worker in workers:
        next_one(worker)
    while busy:
        ready = wait([worker.pipe for worker in busy], timeout=1.0)
        for worker in list(busy):
            hung = time.monotonic() - worker.since > SECONDS_FOR_ONE
            if worker.pipe not in ready and not hung:
                continue
            busy.remove(worker)
            try:
                if worker.pipe not in ready:
                    raise TimeoutError
                note(*worker.pipe.recv())
            except (EOFError, ConnectionError, TimeoutError) as error:
                worker.end()
                kind = "hung" if isinstance(error, TimeoutError) else "crashed"
                note(worker.number, Outcome(findings=[(kind, f"exit code {worker.process.exitcode}")]))
                workers.remove(worker)
                workers.append(Worker(given.seed))
            next_one(worker if worker in workers else workers[-1])
    for worker in workers:
        worker.end()
    print(counts.table(time.monotonic() - start))
    return counts


def main() -> int:
    """Search, as asked for on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for models, samples and settings of findings")
    parser.add_argument("--noisier", action="store_true", help="print outputs with more noise than estimated")
    return 1 if search(parser.parse_args()).findings else 0


if __name__ == "__main__":
    sys.exit(main())
