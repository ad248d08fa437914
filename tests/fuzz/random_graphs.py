"""Random float graphs through all of qprof, for as long as one likes: see `graph_check` for what is held.

    python tests/fuzz/random_graphs.py --seed 1 --count 2000 --seconds 3600 --processes 2 [--keep DIR]

Graph number n of seed s is always the same. Each is checked in a process of its own (`processes`). With
--keep, each finding's model, samples and settings are written to a folder. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from graph_builder import SAMPLES, model_of
from graph_check import EVERYTHING, KINDS, Case, Outcome, check_case, recipe_of, run
from graph_recipes import random_graph
from processes import Answer, run_each
from qprof_onnx.profiles.base.errors import ConfigError

TARGETS = ("onnxruntime-x86",) * 5 + (EVERYTHING,) * 5 + ("onnx",) * 4
TARGETS += ("onnxruntime-arm", "openvino", "tensorrt", "qnn", "glow", "migraphx")

CHOICES: dict[str, tuple[Any, ...]] = {
    "schema": ("asymmetric", "asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"),
    "weight_schema": ("symmetric", "symmetric", "symmetric", "asymmetric", "symmetric-power2"),
    "calibrator": ("mse", "minmax", "minmax", "percentile", "kl"),
    "granularity": ("per-channel", "per-channel", "per-tensor"),
    "activation_type": ("uint8", "uint8", "int8", "uint16"),
    "weight_type": ("int8", "int8", "int8", "uint8", "int4", "uint4"),
    "equalization": ("auto", "free", "off"),
    "bias_correction": ("auto", "off"),
    "rounding": ("nearest", "nearest", "gptq"),
    "mode": ("static", "static", "static", "static", "static", "dynamic", "weight-only", "auto"),
    "min_output_sqnr": (0.0, 0.0, 0.0, 18.0),
    "block_size": (0, 0, 16),
    "keep_float": ((), (), ("MatMul",), ("Relu",)),
}

FACTS: dict[str, tuple[Any, ...]] = {
    "weight_only_activations": ("int8", "float"),
    "lookup_tables": (
        {"*": "portable"},
        {"*": "portable", "Sigmoid": "portable", "Tanh": "portable"},
        {"Sigmoid": "runtime", "Tanh": "runtime"},
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
        settings["keep_float"] = tuple(
            t for t in settings.get("keep_float", ()) if t in there and t != "Relu"
        )
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


def keep(folder: Path, seed: int, number: int, found: Answer) -> None:
    """Write what reproduces a finding."""
    case = random_case(seed, number)
    if case is None:
        return
    into = folder / f"{seed}-{number}"
    into.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, into / "model.onnx")
    for index, sample in enumerate(case.samples):
        np.savez(into / f"{index}.npz", **sample)
    names = ("settings", "facts", "target", "start_everywhere", "forms")
    about = {name: getattr(case, name) for name in names} | {"findings": found["findings"]}
    (into / "case.json").write_text(json.dumps(about, indent=1))


def checked(seed: int, number: int, folder: Path) -> Answer:
    """Check one graph in an empty folder."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    tempfile.tempdir = str(folder)
    case = random_case(seed, number)
    outcome = Outcome() if case is None else check_case(case, folder)
    return {**asdict(outcome), "operators": sorted(outcome.operators)}


def search(given: argparse.Namespace) -> bool:
    """Check graphs until there are enough or time is over, print a table, and tell whether one is wrong."""
    start, findings, counts = time.monotonic(), Counter[str](), Counter[str]()
    refused, operators = Counter[str](), set[str]()
    numbers = range(given.first, given.first + given.count)
    jobs = ((str(number), partial(checked, given.seed, number)) for number in numbers)
    for ended in run_each(jobs, given.processes, given.seconds):
        found = ended.answer or {**asdict(Outcome()), "findings": [(ended.outcome, ended.why)]}
        counts.update(graphs=1, forms=found["forms"], nodes=found["quantized"])
        operators |= set(found["operators"])
        refused.update(found["refused"])
        for kind, text in found["findings"]:
            findings[kind] += 1
            print(f"{given.seed}-{ended.label} {kind}: {text}", flush=True)
        if found["findings"] and given.keep is not None:
            keep(given.keep, given.seed, int(ended.label), found)
    rows = [(name, counts[name]) for name in ("graphs", "forms", "nodes")] + [("operators", len(operators))]
    rows += [(f"{kind} (findings)", findings[kind]) for kind in (*KINDS, "hang", "died")]
    rows += [(f"refused: {text}", count) for text, count in refused.most_common()]
    rows.append(("seconds", round(time.monotonic() - start)))
    print("\n".join(f"{name:60} {count}" for name, count in rows))
    return bool(findings)


def main() -> int:
    """Search, as asked for on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for models, samples and settings of findings")
    return int(search(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
