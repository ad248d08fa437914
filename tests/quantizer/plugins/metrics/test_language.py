"""Language models in the user's unit: perplexity, the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.profiles.samples.objects import PreprocessedData
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import Evaluation, evaluate
from qprof_onnx.quantizer.evaluation.options import Judge
from qprof_onnx.quantizer.targets.loading import load_recipe

log_loss = pytest.importorskip("sklearn.metrics", reason="of the extra test-all").log_loss
tokenizers = pytest.importorskip("tokenizers", reason="of the extra test-all")

WORDS = [*"abcdefghij", "[UNK]"]
DECODER = """
<ir_version: 9, opset_import: ["": 17]>
decoder (int64[batch, new] input_ids, float[batch, past, 6] past_key_values__0)
    => (float[batch, new, 11] logits, float[batch, total, 6] present__0)
<int64[1] last = {-1}, float base = {1.0}, int64 zero = {0}, int64 one = {1}> {
    x = Gather (table, input_ids)
    present__0 = Concat <axis = 1> (past_key_values__0, x)
    turned = Transpose <perm = [0, 2, 1]> (present__0)
    scores = MatMul (x, turned)
    sizes = Shape (scores)
    new = Gather (sizes, one1)
    all = Gather (sizes, two)
    before = Sub (all, new)
    places = Range (before, all, one)
    column = Unsqueeze (places, last)
    every = Range (zero, all, one)
    ahead = Greater (every, column)
    masked = Where (ahead, low, scores)
    shares = Softmax (masked)
    read = MatMul (shares, present__0)
    logits = MatMul (read, head)
}
"""
"""Causal attention of one head: the same scores whatever part of a text is in the cache."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[:10], size)) for size in (20, 9, 14, 17, 12)]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    table, head = (rng.normal(size=size).astype(np.float32) for size in ((11, 6), (6, 11)))
    written(tmp_path / "float.onnx", table, head)
    written(tmp_path / "other.onnx", np.round(table * 2) / 2, head)
    return tmp_path


def written(path: Path, table: np.ndarray, head: np.ndarray) -> None:
    model = parser.parse_model(DECODER)
    weights = {"table": table.astype(np.float32), "head": head, "low": np.float32(-1e9)}
    weights |= {"one1": np.int64(1), "two": np.int64(2)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items())
    for value in (*model.graph.input, *model.graph.output):
        value.name = value.name.replace("__", ".")
    for node in model.graph.node:
        node.input[:] = [name.replace("__", ".") for name in node.input]
        node.output[:] = [name.replace("__", ".") for name in node.output]
    onnx.save(model, path)


def compared(folder: Path, recipe: str = "", **options: object) -> Evaluation:
    path = folder / "recipe.yaml"
    path.write_text(f"reader: text\ntokenizer: tokenizer.json\n{recipe}\n")
    data = PreprocessedData(str(folder / "lines.txt"), str(path))
    measuring = Judge(**{"latency": None, **options})  # type: ignore[arg-type]
    return evaluate(folder / "float.onnx", folder / "other.onnx", data, measuring=measuring)


def scores(path: Path, ids: list[int]) -> np.ndarray:
    """Return the scores of tokens at all positions of a text, run as a whole."""
    past = np.zeros((1, 0, 6), np.float32)
    feeds = {"input_ids": np.array([ids]), "past_key_values.0": past}
    return np.asarray(ort.InferenceSession(str(path)).run(["logits"], feeds)[0][0])


def lines(folder: Path) -> list[list[int]]:
    return [
        [WORDS.index(w) for w in line.split()] for line in (folder / "lines.txt").read_text().splitlines()
    ]


@pytest.mark.parametrize("recipe", ["prompt: 30", "prompt: 3\ndecode: 30", "prompt: 1\ndecode: 19"])
def test_perplexity_is_that_of_a_library_however_a_text_is_cut(folder: Path, recipe: str) -> None:
    score = compared(folder, recipe, metric="perplexity").score
    assert score is not None
    for path, found in (("float.onnx", score.float_score), ("other.onnx", score.quantized_score)):
        rows = np.concatenate([scores(folder / path, ids)[:-1] for ids in lines(folder)]).astype(np.float64)
        shares = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
        truth = [token for ids in lines(folder) for token in ids[1:]]
        assert found == pytest.approx(np.exp(log_loss(truth, shares, labels=range(11))), rel=1e-5)
    assert score.rows == 5
    assert score.drop_unit == "% of float's"


def test_without_a_state_the_next_ids_of_a_sample_are_the_truth(folder: Path) -> None:
    data = [
        {"input_ids": np.array([ids]), "past_key_values.0": np.zeros((1, 0, 6), np.float32)}
        for ids in lines(folder)
    ]
    files = folder / "float.onnx", folder / "other.onnx"
    measuring = Judge(metric="perplexity", latency=None)
    found, stepped = (
        evaluate(*files, data, measuring=measuring).score,
        compared(folder, metric="perplexity").score,
    )
    assert found is not None
    assert stepped is not None
    assert found.quantized_score == pytest.approx(stepped.quantized_score, rel=1e-6)


def test_a_model_that_knows_nothing_of_the_text_has_nothing_to_lose(folder: Path) -> None:
    score = compared(folder, metric="perplexity").score  # random weights on random letters
    assert score is not None
    assert score.chance == pytest.approx(11)
    assert score.is_at_chance
    rng = np.random.default_rng(0)
    table = rng.normal(size=(11, 6)).astype(np.float32)
    same = " ".join(["a b c d"] * 6)
    (folder / "lines.txt").write_text("\n".join([same] * 6) + "\n")
    head = np.zeros((11, 11), np.float32)
    for letter in range(4):
        head[letter, (letter + 1) % 4] = 8
    reached, *_ = np.linalg.lstsq(table, head, rcond=None)
    for name in ("float.onnx", "other.onnx"):
        written(folder / name, table * 4, reached.astype(np.float32) / 4)
    known = compared(folder, metric="perplexity").score
    assert known is not None
    assert known.float_score < 11
    assert not known.is_at_chance


def test_perplexity_needs_scores_of_tokens(folder: Path) -> None:
    with pytest.raises(QprofError, match="no next token of output 'logits' is known"):
        compared(folder, "prompt: 1\ndecode: 0\nmax_length: 1", metric="perplexity")
    files = folder / "float.onnx", folder / "other.onnx"
    data = [{"input_ids": np.zeros((1, 2), np.int64), "past_key_values.0": np.zeros((1, 0, 6), np.float32)}]
    measuring = Judge(metric="perplexity:ids=id", latency=None)
    with pytest.raises(QprofError, match=r"has the tokens is not known; name it, as in perplexity:ids"):
        evaluate(*files, data, measuring=measuring)


def test_a_cache_in_int8_keeps_the_score(folder: Path) -> None:
    path = folder / "recipe.yaml"
    path.write_text("reader: text\ntokenizer: tokenizer.json\nprompt: 3\ndecode: 30\n")
    data = PreprocessedData(str(folder / "lines.txt"), str(path))
    settings = {"kv_cache": "int8", "mode": "weight-only", "keep_float": ["MatMul", "Gather"]}
    profile = profile_model(folder / "float.onnx", data)
    recipe = load_recipe(None, settings)
    write_quantized(folder / "float.onnx", profile, folder / "other.onnx", recipe=recipe)
    measuring = Judge(latency=None, metric="perplexity")
    found = evaluate(folder / "float.onnx", folder / "other.onnx", data, measuring=measuring)
    assert found.score is not None
    assert found.score.quantized_score == pytest.approx(found.score.float_score, rel=0.05)
