"""Decoders in 4 and 8 bits: sizes, noise, greedy tokens, perplexity and time, beside onnxruntime's own tools.

    python tests/benchmarks/run.py decoders --work DIR

On the evaluation split: single runs, most with the float model's cache. "Same token" is the share of new
tokens whose most likely next one is float's; times are those of the thread, in turns, over float's, for one
token after a past and for the longest run, with what that is in tokens a second of an answer and of a prompt.

onnxruntime's tool does not see a last product whose weight is the table transposed; here it gets the model
with that weight written out, as its builder writes it. Its rules: everything in 4 bits; the last product in
8; and the mixed rule of onnxruntime-genai's builder, which has 8 bits in the last product, and of every layer
i of n with i < n / 8, i >= 7 n / 8 or (i - round(n / 8)) mod 3 = 2 in queries, keys and values as one
product, or values alone, and in the last product of the feed-forward net. Each is compared with `fit_size`
at as many bytes of weights, those of the rest of the graph left out. Tables that qprof leaves float, of fewer
than 16,384 elements, are float in all models.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from frame import Row, Rows, Stage, table
from onnx import numpy_helper
from onnxruntime.quantization import matmul_nbits_quantizer as peer
from qprof_onnx.quantizer.planning.hybrid import MIN_TABLE_ELEMENTS
from record import Split, session
from workbench import Workbench, qprof, thread_seconds

BLOCK = 32
FOUR = ("--as", "weight-only-4")
QPROF = {
    "qprof, 8 bits": ("--as", "weight-only-8"),
    "qprof, dynamic int8": ("--as", "int8-dynamic"),
    "qprof, 4 bits, tables and last product in 8": FOUR,
    "qprof, the same, GPTQ": (*FOUR, "--rounding", "gptq", "--data", "{data}"),
    "qprof, 4 bits throughout": (*FOUR, "--set", "fit_size=least"),
}
LAYERS = {
    "char-decoder": (4, 7, (2, 6)),
    "piece-decoder": (5, 4, (0, 3)),
    "builder-decoder": (4, 7, (2, 6)),
}
"""Decoder -> its layers, the products of each in order, and which of these the mixed rule has in 8 bits."""


def written_out(path: Path) -> tuple[onnx.ModelProto, list[str]]:
    """Return a decoder whose last product has a weight of its own, and its products of weights in order."""
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in [node for node in model.graph.node if node.op_type == "Transpose"]:
        if node.input[0] in weights:
            turned = numpy_helper.to_array(weights[node.input[0]]).T.copy()
            model.graph.initializer.append(numpy_helper.from_array(turned, node.output[0]))
            model.graph.node.remove(node)
    names = {tensor.name for tensor in model.graph.initializer}
    products = [n.name for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in names]
    return model, products


def mixed_rule(name: str, products: Sequence[str]) -> list[str]:
    """Return the products that the mixed rule of onnxruntime-genai's builder has in 8 bits."""
    layers, each, places = LAYERS[name]
    eighth = layers / 8
    chosen = [i for i in range(layers) if i < eighth or i >= 7 * eighth or (i - round(eighth)) % 3 == 2]
    return [products[i * each + place] for i in chosen for place in places] + [products[-1]]


def of_peer(path: Path, out: Path, eight: Sequence[str], *, is_k_quant: bool) -> None:
    """Write a decoder as onnxruntime's tool does, some of its products in 8 bits and the others in 4."""
    model, products = written_out(path)
    tables = {tensor.name for tensor in model.graph.initializer if np.prod(tensor.dims) >= MIN_TABLE_ELEMENTS}
    small = [
        node.name for node in model.graph.node if node.op_type == "Gather" and node.input[0] not in tables
    ]
    if is_k_quant:
        special = {name: {"bits": 8} for name in eight}
        config = peer.KQuantWeightOnlyQuantConfig(customized_weight_config=special)
        steps = [(4, [], config)]
    else:
        narrow = [name for name in products if name not in eight]
        steps = [(8, narrow, None)] if eight else []
        steps += [(4, [], None)]
    for bits, left, config in steps:
        quantizer = peer.MatMulNBitsQuantizer(
            model,
            bits=bits,
            block_size=BLOCK,
            is_symmetric=False,
            accuracy_level=4,
            nodes_to_exclude=[*left, *small],
            op_types_to_quantize=("MatMul",) if left or is_k_quant else ("MatMul", "Gather"),
            quant_axes=(("MatMul", 0), ("Gather", 1)),
            algo_config=config,
        )
        quantizer.process()
        model = quantizer.model.model
    for node in model.graph.node:
        if node.op_type == "MatMulNBits" and all(a.name != "accuracy_level" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(model, out)


def bytes_of_weights(path: Path) -> int:
    """Return how many bytes the weights take, those of 4 bits packed as they are in the file."""
    tensors = onnx.load(path).graph.initializer
    return sum(len(one.raw_data) or numpy_helper.to_array(one).nbytes for one in tensors)


def judged(path: Path, reference: Sequence[np.ndarray], split: Split) -> Row:
    """Return the noise of the logits, the share of the same tokens and the perplexity of the next ones."""
    opened = session(path, 1)
    signal = noise = same = total = surprise = 0.0
    for feed, wanted, labels in zip(split.feeds(), reference, split.labels, strict=True):
        logits = np.asarray(opened.run(["logits"], feed)[0], np.float64)
        signal, noise = (
            signal + np.sum(wanted.astype(np.float64) ** 2),
            noise + np.sum((logits - wanted) ** 2),
        )
        same += np.sum(logits.argmax(-1) == wanted.argmax(-1))
        highest = logits.max(-1, keepdims=True)
        likely = logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))
        surprise -= np.take_along_axis(likely[0], np.array(labels)[:, None], 1).sum()
        total += len(labels)
    return {
        "sqnr": 10.0 * float(np.log10(signal / noise)) if noise else None,
        "same": 100.0 * same / total,
        "perplexity": float(np.exp(surprise / total)),
    }


def times(
    files: Mapping[str, Path], feeds: Sequence[Any], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Return for each model and feed the median time over float's and tokens a second, models in turns."""
    opened = {name: session(path, 1) for name, path in files.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in files}
    for feed in feeds:
        runs = {name: partial(one.run, ["logits"], feed) for name, one in opened.items()}
        spent = thread_seconds(runs, rounds)
        for name in files:
            ratios = [a / b for a, b in zip(spent[name], spent["float"], strict=True)]
            found[name].append(
                (statistics.median(ratios), _new_tokens(feed) / statistics.median(spent[name]))
            )
    return found


def rows(name: str, given: Namespace) -> Iterator[Row]:
    bench = Workbench(name, given.work, given.parts, again=given.again)
    split = bench.split(given.on)
    files, failed, rules = {"float": bench.path}, dict[str, str](), dict[str, str]()

    def add(label: str, *words: str) -> Path | None:
        variant = "decoders-" + "".join(letter if letter.isalnum() else "-" for letter in label)
        record = bench.build(qprof(variant, *words))
        if not record or record["error"]:
            failed[label] = record.get("error", "was not built")
            return None
        files[label] = bench.file(variant)
        return files[label]

    for label, words in QPROF.items():
        add(label, *words)
    least = files["qprof, 4 bits throughout"]
    graph = least.stat().st_size - bytes_of_weights(least)
    _, products = written_out(bench.path)
    for algorithm, is_k_quant in (("default", False), ("k-quant", True)):
        for rule, eight in {
            "4 bits": [],
            "last product in 8": products[-1:],
            "mixed rule of genai": mixed_rule(name, products),
        }.items():
            label, out = (
                f"onnxruntime, {algorithm}, {rule}",
                bench.folder / "built" / f"{algorithm}-{rule}.onnx",
            )
            try:
                of_peer(bench.path, out, eight, is_k_quant=is_k_quant)
                session(out, 1)
            except Exception as problem:  # whatever a tool does with this model is its row
                reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
                failed[label] = reason.replace(str(out), out.name)[:240]
                continue
            files[label] = out
            size = bytes_of_weights(out) + graph
            again = f"qprof, `fit_size`, as {label.removeprefix('onnxruntime, ')}"
            if add(again, "--set", "mode=weight-only", "--set", f"fit_size={size}B"):
                rules[again] = label
    if "time" not in given.parts:
        return
    reference = [session(bench.path, 1).run(["logits"], feed)[0] for feed in split.feeds()]
    feeds = sorted(split.feeds(), key=_new_tokens)
    spent = times(files, (feeds[0], feeds[-1]), given.rounds)
    for label, file in files.items():
        yield {
            "weights": label,
            "kb": bytes_of_weights(file) / 1e3,
            "file_kb": file.stat().st_size / 1e3,
            **judged(file, reference, split),
            "one": spent[label][0][0],
            "many": spent[label][1][0],
            "answer_rate": spent[label][0][1],
            "prompt_rate": spent[label][1][1],
            "beside": rules.get(label, ""),
        }
    for label, problem in failed.items():
        yield {"weights": label, "error": problem}


def _new_tokens(feed: Mapping[str, np.ndarray]) -> int:
    return next(array.size for name, array in feed.items() if "." not in name)


def page(rows: Rows) -> str:
    return "\n\n".join(f"{name}:\n\n{_part(found)}" for name, found in rows.items())


def _part(found: Sequence[Row]) -> str:
    head = [
        "",
        "kB of weights",
        "kB of file",
        "logits, dB",
        "same token",
        "perplexity",
        "one token",
        "longest run",
    ]
    cells: list[list[str]] = []
    failed: dict[str, list[str]] = {}
    for row in found:
        if "error" in row:
            failed.setdefault(row["error"], []).append(row["weights"])
            continue
        cells.append(
            [
                row["weights"],
                f"{row['kb']:.1f}",
                f"{row['file_kb']:.1f}",
                "" if row["sqnr"] is None else f"{row['sqnr']:.2f}",
                f"{row['same']:.2f} %",
                f"{row['perplexity']:.4f}",
                f"{row['one']:.2f}",
                f"{row['many']:.2f}",
            ]
        )
    notes = [f"Failed ({error}): {'; '.join(names)}." for error, names in failed.items()]
    return "\n\n".join([table(head, cells), *notes])


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="evaluation")
    parser.add_argument("--rounds", type=int, default=40, help="of timing")


STAGE = Stage(rows, {"decoders": page}, tuple(LAYERS), options)
