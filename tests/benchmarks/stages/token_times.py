"""What runs of a decoder on one token and on many take, predicted and measured: packed weights, dynamic int8.

    python tests/benchmarks/run.py token-times --work DIR --layers 4

A decoder with a cache, of seeded weights: attention of 16 heads of 64, gated feed-forward nets, a head of
8,192 tokens. All models run in turns on one thread; times are those of the thread, medians.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from frame import Row, Rows, Stage, table
from onnx import numpy_helper, parser
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.costs.token_runs import token_costs
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe
from workbench import thread_seconds

WIDTH, INNER, HEADS, TOKENS = 1024, 2816, 16, 8192
EACH = WIDTH // HEADS
LAYER = """
    n{i} = LayerNormalization (x{i}, one, zero)
    q{i} = MatMul (n{i}, wq{i}) k{i} = MatMul (n{i}, wk{i}) v{i} = MatMul (n{i}, wv{i})
    qr{i} = Reshape (q{i}, heads) kr{i} = Reshape (k{i}, heads) vr{i} = Reshape (v{i}, heads)
    qt{i} = Transpose <perm = [0, 2, 1, 3]> (qr{i}) kt{i} = Transpose <perm = [0, 2, 1, 3]> (kr{i})
    vt{i} = Transpose <perm = [0, 2, 1, 3]> (vr{i})
    present_k{i} = Concat <axis = 2> (past_k{i}, kt{i}) present_v{i} = Concat <axis = 2> (past_v{i}, vt{i})
    kk{i} = Transpose <perm = [0, 1, 3, 2]> (present_k{i})
    s{i} = MatMul (qt{i}, kk{i}) c{i} = Mul (s{i}, root) p{i} = Softmax (c{i})
    a{i} = MatMul (p{i}, present_v{i}) at{i} = Transpose <perm = [0, 2, 1, 3]> (a{i})
    ar{i} = Reshape (at{i}, flat) o{i} = MatMul (ar{i}, wo{i}) r{i} = Add (x{i}, o{i})
    m{i} = LayerNormalization (r{i}, one, zero) g{i} = MatMul (m{i}, wg{i}) u{i} = MatMul (m{i}, wu{i})
    e{i} = Sigmoid (g{i}) f{i} = Mul (g{i}, e{i}) h{i} = Mul (f{i}, u{i}) d{i} = MatMul (h{i}, wd{i})
    x{j} = Add (r{i}, d{i})
"""
FORMS = {
    "weights of 8 bits": {"mode": "weight-only"},
    "weights of 4 bits": {"mode": "weight-only", "weight_type": "int4"},
    "dynamic int8": {"mode": "dynamic"},
}
RUNS = {"1 after 96": (1, 96, 40), "16": (16, 0, 30), "64": (64, 0, 12), "512": (512, 0, 5)}
"""Name -> tokens of a run, tokens before it, rounds."""


def build(path: Path, layers: int) -> None:
    """Write the decoder."""
    cache = [f"float[1, {HEADS}, past, {EACH}] past_{part}{i}" for i in range(layers) for part in "kv"]
    given = [f"float[1, {HEADS}, total, {EACH}] present_{part}{i}" for i in range(layers) for part in "kv"]
    text = "".join(LAYER.format(i=i, j=i + 1) for i in range(layers))
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 17]> decoder (int64[1, new] input_ids, {", ".join(cache)}) => '
        f"(float[1, new, {TOKENS}] logits, {', '.join(given)}) <int64[4] heads = {{0, 0, {HEADS}, {EACH}}}, "
        f"int64[3] flat = {{0, 0, {WIDTH}}}, float root = {{{EACH**-0.5}}}> {{ "
        f"x0 = Gather (table, input_ids) {text} last = LayerNormalization (x{layers}, one, zero) "
        "logits = MatMul (last, head) }"
    )
    rng = np.random.default_rng(0)
    sizes = {"table": (TOKENS, WIDTH), "head": (WIDTH, TOKENS)}
    for i in range(layers):
        sizes |= {f"w{letter}{i}": (WIDTH, WIDTH) for letter in "qkvo"}
        sizes |= {f"wg{i}": (WIDTH, INNER), f"wu{i}": (WIDTH, INNER), f"wd{i}": (INNER, WIDTH)}
    arrays = {name: rng.normal(0, size[0] ** -0.5, size) for name, size in sizes.items()}
    arrays |= {"one": np.ones(WIDTH), "zero": np.zeros(WIDTH)}
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    onnx.save(model, path)


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    if "time" not in given.parts:
        return
    folder = given.work / "token-times"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"decoder{given.layers}.onnx"
    if not path.exists():
        build(path, given.layers)
    prepared = open_prepared(path)
    files, predicted = {"float": path}, dict[str, dict[str, float]]()
    for name, settings in FORMS.items():
        recipe = load_recipe("onnxruntime-x86", settings)
        plan = plan_from(model_facts(prepared, Profile(prepared.identity, DataId(), {}), recipe)).plan
        files[name] = folder / f"{name.replace(' ', '_')}.onnx"
        write_quantized(path, None, files[name], recipe=recipe)
        assert recipe.costs is not None
        predicted[name] = {}
        for run, (tokens, past, _) in RUNS.items():
            answer = 2 * (past - 1) if past else 1  # the middle of an answer is half of it after the prompt
            costs = token_costs(prepared.model, recipe.costs, recipe.target, 1 if past else tokens, answer)
            assert costs is not None
            time_ = costs.predicted(plan)
            predicted[name][run] = time_.answer_ratio if past else time_.prompt_ratio
    sessions = {name: open_session(str(file), name, 1) for name, file in files.items()}
    rng = np.random.default_rng(1)
    for run, (tokens, past, rounds) in RUNS.items():
        feeds = {"input_ids": rng.integers(0, TOKENS, (1, tokens))}
        for i in range(given.layers):
            for part in "kv":
                feeds[f"past_{part}{i}"] = rng.normal(size=(1, HEADS, past, EACH)).astype(np.float32)
        runs = {name: partial(session.run, ["logits"], feeds) for name, session in sessions.items()}
        spent = thread_seconds(runs, rounds)
        whole = 1e3 * statistics.median(spent["float"])
        for name in FORMS:
            ratios = [a / b for a, b in zip(spent[name], spent["float"], strict=True)]
            yield {
                "form": name,
                "run": run,
                "float_ms": whole,
                "predicted": predicted[name][run],
                "measured": statistics.median(ratios),
            }


def page(rows: Rows) -> str:
    """Return the table: a row for each run, predicted and measured of each form."""
    (found,) = rows.values()
    cells = []
    for run in RUNS:
        own = [row for row in found if row["run"] == run]
        both = (f"{row['predicted']:.2f}, {row['measured']:.2f}" for row in own)
        cells.append([run, f"{own[0]['float_ms']:.1f}", *both])
    return "Predicted, measured; over float.\n\n" + table(["tokens", "float, ms", *FORMS], cells)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=4)


STAGE = Stage(rows, {"token-times": page}, (), options)
