"""Caches of keys and values in int8: what they lose over 512 tokens, and what they bring when they are long.

    python tests/benchmarks/run.py caches --work DIR

Two trained decoders, each in standard operators as it would be exported, and with GroupQueryAttention: one
was trained as the first and is written as the other here, and the reverse. Weights stay float, so that the
cache alone is judged. Each model runs on its own cache, 64 tokens of a text and then one by one; "same token"
is the share whose most likely next one is float's, of all and of those after 384. The decoders were trained
for 96 and 160 places, so that most places are ones that neither they nor the profile have seen.

Times are of a decoder of seeded weights with 16 heads of 64 and 4 layers, for one token after many, float
and int8 in turns; memory is by how much the resident set of a process grows that runs 16 such steps.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from frame import HERE, Row, Rows, Stage, number, table
from models import builder_decoder, char_decoder, piece_decoder
from onnx import numpy_helper, parser
from openvino_runs import OpenVinoSession, openvino_run
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import session
from workbench import Workbench, thread_seconds

TEXTS, TOKENS, PROMPT, LATE, PLACES = 8, 512, 64, 384, 640
STANDARD, ATTENTION = "standard operators", "GroupQueryAttention"
CACHES = ("float", "int8", "int8-per-channel")
LENGTHS = (512, 2048, 8192)

Run = Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]]


# The decoders in both spellings -----------------------------------------------------------------------------


def longer(model: onnx.ModelProto, cosines: str, sines: str) -> np.ndarray:
    """Write the tables of rotary positions for more places; return the angles of a place."""
    tables = {t.name: t for t in model.graph.initializer}
    first = [numpy_helper.to_array(tables[name])[1] for name in (cosines, sines)]
    angles = np.arctan2(first[1], first[0]).astype(np.float64)
    for name, function in ((cosines, np.cos), (sines, np.sin)):
        values = function(np.outer(np.arange(PLACES), angles)).astype(np.float32)
        tables[name].CopyFrom(numpy_helper.from_array(values, name))
    return angles


def with_attention(model: onnx.ModelProto, heads: int, stored: int, width: int) -> onnx.ModelProto:
    """Return char_decoder with GroupQueryAttention in place of what computes it."""
    angles = longer(model, "val_12", "val_20")[: width // 2]
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def product(name: str) -> str:
        """Return the product with a weight that a tensor is made of."""
        constants = {t.name for t in graph.initializer}
        while makers[name].op_type != "MatMul" or makers[name].input[1] not in constants:
            name = makers[name].input[0]
        return name

    def after(name: str, kind: str) -> onnx.NodeProto:
        """Return the first node of a kind after a tensor."""
        while True:
            node = next((n for n in readers[name] if n.op_type == kind), readers[name][0])
            if node.op_type == kind:
                return node
            name = node.output[0]

    text = """past_ = Shape <start = 2, end = 3> ("past.0.key") new_ = Shape <start = 1, end = 2> (letters)
      sum_ = Add (past_, new_) all_ = Squeeze (sum_) total_ = Cast <to = 6> (all_)
      before_ = Sub (sum_, one_) lengths_ = Cast <to = 6> (before_)"""
    replaced, nodes = {}, list(_nodes(text))
    for layer in range(char_decoder.LAYERS):
        keys, values = (f"present.{layer}.{part}" for part in ("key", "value"))
        scores = after(keys, "MatMul")
        result = after(after(after(scores.output[0], "Softmax").output[0], "MatMul").output[0], "Reshape")
        inputs = [product(scores.input[0]), product(makers[keys].input[1]), product(makers[values].input[1])]
        inputs += [f"past.{layer}.{part}" for part in ("key", "value")]
        inputs += ["lengths_", "total_", "cosines_", "sines_"]
        outputs = [result.output[0], keys, values]
        attention = onnx.helper.make_node(ATTENTION, inputs, outputs, domain="com.microsoft")
        for name, value in (("num_heads", heads), ("kv_num_heads", stored), ("do_rotary", 1)):
            attention.attribute.append(onnx.helper.make_attribute(name, value))
        replaced[id(makers[values])] = attention  # the last of the two that it needs
        for old in (makers[keys], result):
            replaced[id(old)] = None
    for node in graph.node:
        new = replaced.get(id(node), node)
        nodes += [] if new is None else [new]
    del graph.node[:]
    graph.node.extend(_needed(nodes, [value.name for value in graph.output]))
    for name, array in _tables(angles).items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one_"))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def _tables(angles: np.ndarray) -> dict[str, np.ndarray]:
    each = np.outer(np.arange(PLACES), angles)
    return {"cosines_": np.cos(each).astype(np.float32), "sines_": np.sin(each).astype(np.float32)}


def _needed(nodes: Sequence[onnx.NodeProto], wanted: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes that outputs need, in an order in which each comes after those that it reads."""
    makers = {name: node for node in nodes for name in node.output if name}
    order: dict[int, onnx.NodeProto] = {}

    def add(name: str) -> None:
        node = makers.get(name)
        if node is not None and id(node) not in order:
            for each in node.input:
                add(each)
            order[id(node)] = node

    for name in wanted:
        add(name)
    return list(order.values())


ATTENTION_WRITTEN_OUT = """
    hq{i} = Reshape (query{i}, apart_) hk{i} = Reshape (key{i}, apart_) hv{i} = Reshape (value{i}, apart_)
    tq{i} = Transpose <perm = [0, 2, 1, 3]> (hq{i}) tk{i} = Transpose <perm = [0, 2, 1, 3]> (hk{i})
    tv{i} = Transpose <perm = [0, 2, 1, 3]> (hv{i})
    q1{i}, q2{i} = Split <axis = -1, num_outputs = 2> (tq{i}) nq{i} = Neg (q2{i})
    rq{i} = Concat <axis = -1> (nq{i}, q1{i}) cq{i} = Mul (tq{i}, cos_) sq{i} = Mul (rq{i}, sin_)
    q{i} = Add (cq{i}, sq{i})
    k1{i}, k2{i} = Split <axis = -1, num_outputs = 2> (tk{i}) nk{i} = Neg (k2{i})
    rk{i} = Concat <axis = -1> (nk{i}, k1{i}) ck{i} = Mul (tk{i}, cos_) sk{i} = Mul (rk{i}, sin_)
    k{i} = Add (ck{i}, sk{i})
    "present.{i}.key" = Concat <axis = 2> ("past.{i}.key", k{i})
    "present.{i}.value" = Concat <axis = 2> ("past.{i}.value", tv{i})
    uk{i} = Unsqueeze ("present.{i}.key", two_) ek{i} = Expand (uk{i}, times_)
    wk_{i} = Reshape (ek{i}, heads_)
    uv{i} = Unsqueeze ("present.{i}.value", two_) ev{i} = Expand (uv{i}, times_)
    wv_{i} = Reshape (ev{i}, heads_)
    kt{i} = Transpose <perm = [0, 1, 3, 2]> (wk_{i}) s{i} = MatMul (q{i}, kt{i}) d{i} = Mul (s{i}, root_)
    m{i} = Add (d{i}, mask_) p{i} = Softmax (m{i}) a{i} = MatMul (p{i}, wv_{i})
    b{i} = Transpose <perm = [0, 2, 1, 3]> (a{i}) joined{i} = Reshape (b{i}, flat_)
"""


def _nodes(text: str, constants: str = "") -> Sequence[onnx.NodeProto]:
    return parser.parse_graph(f"g () => () <{constants}> {{ {text} }}").node


def written_out(model: onnx.ModelProto, heads: int, stored: int, width: int) -> onnx.ModelProto:
    """Return builder_decoder with its attention in standard operators, as optimum exports it."""
    angles = longer(model, "cosines", "sines")
    text = """past_ = Shape <start = 2, end = 3> ("past.0.key") new_ = Shape <start = 1, end = 2> (input_ids)
      before_ = Squeeze (past_) sum_ = Add (past_, new_) all_ = Squeeze (sum_)
      places_ = Range (before_, all_, unit_) seen_ = Range (zero_, all_, unit_)
      cos_ = Gather (cosines_, places_) sin_ = Gather (sines_, places_) rows_ = Unsqueeze (places_, last_)
      later_ = Greater (seen_, rows_) mask_ = Where (later_, lowest_, none_)"""
    nodes = list(_nodes(text))
    for node in model.graph.node:
        if node.op_type == ATTENTION:
            nodes += _nodes(ATTENTION_WRITTEN_OUT.format(i=node.output[0].removeprefix("joined")))
        else:
            nodes.append(node)
    arrays = _tables(np.concatenate([angles, angles]))
    arrays |= {
        "apart_": np.array([0, 0, -1, width]),
        "heads_": np.array([0, heads, -1, width]),
        "flat_": np.array([0, 0, heads * width]),
        "times_": np.array([1, 1, heads // stored, 1, 1]),
        **{"two_": np.array([2]), "last_": np.array([-1]), "unit_": np.array(1), "zero_": np.array(0)},
        **{"lowest_": np.float32(-1e9), "none_": np.float32(0.0), "root_": np.float32(width**-0.5)},
    }
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    del model.graph.node[:]
    model.graph.node.extend(_needed(nodes, [value.name for value in model.graph.output]))
    return model


# What is lost -----------------------------------------------------------------------------------------------


def runner(path: Path, runtime: str) -> Run:
    """Return what runs a model: its inputs by name to its outputs in order."""
    opened = OpenVinoSession(path, 1) if runtime == "openvino" else session(path, 1)
    return partial(opened.run, None)


def generated(run: Run, decoder: Any, tokens: np.ndarray, dtype: type) -> np.ndarray:
    """Return the logits of a text, a prompt at once and then token after token, on the model's own cache."""
    cache = [array.astype(dtype) for array in decoder.nothing()]
    found, begin = [], 0
    for end in (PROMPT, *range(PROMPT + 1, TOKENS + 1)):
        logits, *cache = run(decoder._feed(tokens[begin:end], cache))
        found.append(np.asarray(logits)[0])
        begin = end
    return np.concatenate(found)


def texts_of(name: str, folder: Path) -> list[np.ndarray]:
    """Return texts of the evaluation split, `TOKENS` long."""
    if name == "char-decoder":
        every = char_decoder.texts("evaluation")
    else:
        every = piece_decoder.texts(folder / "pieces.json", "evaluation")
    whole = np.concatenate(every)
    return [whole[start * TOKENS : (start + 1) * TOKENS] for start in range(TEXTS)]


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    if subject == "times":
        yield from times(given)
        return
    bench = Workbench(subject, given.work, given.parts, again=given.again)
    module = char_decoder if subject == "char-decoder" else builder_decoder
    sizes = (module.HEADS, module.KEY_HEADS, module.HEAD_WIDTH)
    folder = given.work / "caches" / subject
    folder.mkdir(parents=True, exist_ok=True)
    bench.split("calibration")
    texts = texts_of(subject, bench.path.parent)
    exact: list[np.ndarray] = []
    for spelling in (STANDARD, ATTENTION):
        model = onnx.load(bench.path)
        if subject == "char-decoder" and spelling == ATTENTION:
            model = with_attention(model, *sizes)
        elif subject == "builder-decoder" and spelling == STANDARD:
            model = written_out(model, *sizes)
        else:
            longer(model, *(("val_12", "val_20") if spelling == STANDARD else ("cosines", "sines")))
        path = folder / f"{spelling.split()[0]}.onnx"
        onnx.save(model, path)
        profile = profile_model(path, bench.folder / "calibration")
        for runtime in ("onnxruntime", "openvino")[: 1 + (spelling == STANDARD)]:
            for cache in CACHES:
                file = written(path, profile, cache, "onnxruntime-x86" if spelling == ATTENTION else "onnx")
                dtype = np.float32 if cache == "float" else np.int8
                run = runner(file, runtime)
                found = [generated(run, module.DECODER, text, dtype) for text in texts]
                exact = exact or found
                yield {
                    **{"spelling": spelling, "runtime": runtime, "cache": cache},
                    **compared(exact, found),
                    "bytes": 2 * module.LAYERS * sizes[1] * sizes[2] * np.dtype(dtype).itemsize,
                }


def written(path: Path, profile: Profile, cache: str, target: str) -> Path:
    """Return a model with its cache in int8 and its weights in float."""
    if cache == "float":
        return path
    kinds = {node.op_type for node in onnx.load(path).graph.node} & {"MatMul", "Gather"}
    settings = {"kv_cache": cache, "mode": "weight-only", "keep_float": sorted(kinds)}
    file = path.with_name(f"{path.stem}.{cache}.onnx")
    write_quantized(path, profile, file, recipe=load_recipe(target, settings))
    return file


def compared(exact: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> Row:
    """Return the noise of logits in dB, and which share of the greedy tokens is the same."""
    wanted, given = np.stack(exact).astype(np.float64), np.stack(found)
    same = wanted.argmax(-1) == given.argmax(-1)
    noise = np.square(wanted - given).sum()
    return {
        "db": float(10.0 * np.log10(np.square(wanted).sum() / noise)) if noise else None,
        "same": 100.0 * float(same[:, PROMPT:].mean()),
        "late": 100.0 * float(same[:, LATE:].mean()),
    }


# Time and memory --------------------------------------------------------------------------------------------

HEADS, WIDTH, LAYERS = 16, 64, 4
GROUPED = """
    x{j}, "pk{i}o", "pv{i}o" = com.microsoft.GroupQueryAttention <num_heads = 16, kv_num_heads = 16>
        (q{i}, k{i}, v{i}, past_k{i}, past_v{i}, lengths, total)
"""
WRITTEN = """
    hq{i} = Reshape (q{i}, apart) hk{i} = Reshape (k{i}, apart) hv{i} = Reshape (v{i}, apart)
    tq{i} = Transpose <perm = [0, 2, 1, 3]> (hq{i}) tk{i} = Transpose <perm = [0, 2, 1, 3]> (hk{i})
    tv{i} = Transpose <perm = [0, 2, 1, 3]> (hv{i})
    pk{i}o = Concat <axis = 2> (past_k{i}, tk{i}) pv{i}o = Concat <axis = 2> (past_v{i}, tv{i})
    kt{i} = Transpose <perm = [0, 1, 3, 2]> (pk{i}o) s{i} = MatMul (tq{i}, kt{i}) d{i} = Mul (s{i}, root)
    p{i} = Softmax (d{i}) a{i} = MatMul (p{i}, pv{i}o)
    b{i} = Transpose <perm = [0, 2, 1, 3]> (a{i}) x{j} = Reshape (b{i}, flat)
"""


def build(path: Path, spelling: str) -> None:
    """Write attention after attention, products before each."""
    size, layers = HEADS * WIDTH, range(LAYERS)
    step = GROUPED if spelling == ATTENTION else WRITTEN
    body = "".join(
        f"q{i} = MatMul (x{i}, wq{i}) k{i} = MatMul (x{i}, wk{i}) v{i} = MatMul (x{i}, wv{i})"
        + step.format(i=i, j=i + 1)
        for i in layers
    )
    cache = [f"float[1, {HEADS}, past, {WIDTH}] past_{part}{i}" for i in layers for part in "kv"]
    given = [f"float[1, {HEADS}, all, {WIDTH}] p{part}{i}o" for i in layers for part in "kv"]
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g (float[1, new, {size}] x0, '
        f"{', '.join(cache)}) => (float[1, new, {size}] x{LAYERS}, {', '.join(given)}) <int64[4] apart = "
        f"{{0, 0, {HEADS}, {WIDTH}}}, int64[3] flat = {{0, 0, {size}}}, float root = {{{WIDTH**-0.5}}}, "
        "int64[1] one = {1}> { past = Shape <start = 2, end = 3> (past_k0) new = Shape <start = 1, end = 2> "
        "(x0) sum = Add (past, new) all = Squeeze (sum) total = Cast <to = 6> (all) last = Sub (sum, one) "
        f"lengths = Cast <to = 6> (last) {body} }}"
    )
    rng = np.random.default_rng(0)
    for name in (f"w{letter}{i}" for i in layers for letter in "qkv"):
        weight = rng.normal(0, size**-0.5, (size, size)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    nodes = _needed(list(model.graph.node), [value.name for value in model.graph.output])
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, path)


def feeds_of(past: int, dtype: type) -> dict[str, np.ndarray]:
    """Return the inputs of one token after so many."""
    rng = np.random.default_rng(0)
    feeds = {"x0": rng.standard_normal((1, 1, HEADS * WIDTH)).astype(np.float32)}
    for i in range(LAYERS):
        for part in "kv":
            values = rng.standard_normal((1, HEADS, past, WIDTH), np.float32)
            feeds[f"past_{part}{i}"] = values if dtype is np.float32 else (30 * values).astype(dtype)
    return feeds


def times(given: Namespace) -> Iterator[Row]:
    """Yield what one token takes, float and int8 in turns, and the memory of a process that runs some."""
    folder = given.work / "caches" / "times"
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for past in (0, 8, 32, 64):
        np.savez(data / f"{past}.npz", **feeds_of(past, np.float32))
    for spelling in (STANDARD, ATTENTION):
        path = folder / f"{spelling.split()[0]}.onnx"
        build(path, spelling)
        profile = profile_model(path, data)
        target = "onnxruntime-x86" if spelling == ATTENTION else "onnx"
        files = {cache: written(path, profile, cache, target) for cache in CACHES}
        for runtime in ("onnxruntime", "openvino")[: 1 + (spelling == STANDARD)]:
            for past in LENGTHS:
                runs = {}
                for cache, file in files.items():
                    run = openvino_run(file, 1) if runtime == "openvino" else runner(file, runtime)
                    runs[cache] = partial(run, feeds_of(past, np.float32 if cache == "float" else np.int8))
                spent = thread_seconds(runs, given.rounds if past < 4096 else given.rounds // 2)
                row: Row = {"spelling": spelling, "runtime": runtime, "past": past}
                row["ms"] = 1e3 * statistics.median(spent["float"])
                for cache in CACHES:
                    both = zip(spent[cache], spent["float"], strict=True)
                    row[cache] = statistics.median(own / floats for own, floats in both)
                    if past == LENGTHS[-1]:
                        row[f"mb of {cache}"] = peak_mb(files[cache], runtime, past, cache)
                yield row


def peak_mb(file: Path, runtime: str, past: int, cache: str) -> float:
    """Return by how much the resident set of a process grows while it runs some tokens, in MB."""
    program = "from stages.caches import print_peak; print_peak()"
    words = [sys.executable, "-c", program, str(file), runtime, str(past), cache]
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    place = {**os.environ, "PYTHONPATH": path}
    return float(subprocess.run(words, capture_output=True, text=True, check=True, env=place).stdout)


def print_peak() -> None:
    """Run 16 tokens, each on what the last gave back; print in MB how far the resident set grows for it."""
    status = Path("/proc/self/status")

    def resident(key: str) -> float:
        return float(status.read_text().split(f"{key}:")[1].split()[0]) / 1e3

    file, runtime, past, cache = sys.argv[1:]
    run = runner(Path(file), runtime)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    feeds = feeds_of(int(past), np.float32 if cache == "float" else np.int8)
    names = [name for name in feeds if name != "x0"]
    for _ in range(16):
        feeds.update(zip(names, run(feeds)[1:], strict=True))
    print(resident("VmHWM") - before)


# Tables -----------------------------------------------------------------------------------------------------


def page(rows: Rows) -> str:
    """Return the table of what is lost against a float cache."""
    cells = [
        [
            subject,
            f"{row['spelling']}, {row['runtime']}",
            row["cache"],
            row["bytes"],
            "" if row["db"] is None else f"{row['db']:.1f}",
            f"{row['same']:.1f}",
            f"{row['late']:.1f}",
        ]
        for subject, found in rows.items()
        for row in found
        if "db" in row and row["cache"] != "float"
    ]
    head = ["", "", "cache", "bytes a token", "logits, dB", "same token, %", "after 384, %"]
    return table(head, cells)


def page_of_times(rows: Rows) -> str:
    """Return the table of times and memory."""
    cells = [
        [
            f"{row['spelling']}, {row['runtime']}",
            row["past"],
            f"{row['ms']:.1f}",
            *(f"{row[cache]:.2f}" for cache in CACHES[1:]),
            *(number(row.get(f"mb of {cache}"), 0) for cache in CACHES[:2]),
        ]
        for row in rows.get("times", ())
    ]
    head = ["", "tokens before", "float, ms", "int8, times float", "per channel", "MB, float", "MB, int8"]
    return table(head, cells)


def options(parser: Any) -> None:
    parser.add_argument("--rounds", type=int, default=24, help="of timing")


STAGE = Stage(
    rows,
    {"caches": page, "cache-times": page_of_times},
    ("char-decoder", "builder-decoder", "times"),
    options,
)
