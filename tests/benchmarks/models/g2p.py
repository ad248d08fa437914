"""g2p_en, a GRU encoder and a GRU decoder in a loop: a word's letters -> its sounds, one after the other.

The package has the trained weights and computes in numpy; the graph around them is written here. The words
with answers are the package's own list of homographs: either of the two ways to say one is right.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import text
from onnx import TensorProto, helper, numpy_helper
from record import Counts, Feed, Outputs, RealModel, Scores, archive, per_feed, written_once

LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = (
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N"),
    *("NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y", "Z", "ZH"),
)
SOUNDS = (
    *("<pad>", "<unk>", "<s>", "</s>"),
    *sorted([*(f"{vowel}{stress}" for vowel in VOWELS for stress in (0, 1, 2)), *CONSONANTS, "UW"]),
)
START, END, STEPS = SOUNDS.index("<s>"), SOUNDS.index("</s>"), 20


def _member(name: str) -> bytes:
    with zipfile.ZipFile(archive("g2p_en-*.whl")) as wheel:
        return wheel.read(f"g2p_en/{name}")


def _gates(stacked: np.ndarray) -> np.ndarray:
    """Return PyTorch's gates (reset, update, new) in ONNX's order: update, reset, new."""
    reset, update, new = np.split(stacked, 3)
    return np.concatenate([update, reset, new])[None]


def _constants(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    constants = {
        "enc_emb": weights["enc_emb"],
        "dec_emb": weights["dec_emb"],
        "fc_w": weights["fc_w"].T,
        "fc_b": weights["fc_b"],
        "zero": np.zeros((1, 1, weights["fc_w"].shape[1]), np.float32),
        "start": np.array([START], np.int64),
        "steps": np.array(STEPS, np.int64),
        "true": np.array(True),
        "axis": np.array([1], np.int64),
    }
    for part in ("enc", "dec"):
        constants[f"{part}_w"] = _gates(weights[f"{part}_w_ih"])
        constants[f"{part}_r"] = _gates(weights[f"{part}_w_hh"])
        both = [_gates(weights[f"{part}_b_{side}"]) for side in ("ih", "hh")]
        constants[f"{part}_b"] = np.concatenate(both, axis=1)
    return {name: np.array(value, order="C") for name, value in constants.items()}


def _gru(part: str, letters: str, state: str, to: str) -> list[onnx.NodeProto]:
    """Return the nodes of an embedding and a GRU over it, the last state to a name."""
    hidden = {"hidden_size": 256, "linear_before_reset": 1}
    inputs = [f"{part}_x", f"{part}_w", f"{part}_r", f"{part}_b", "", state]
    return [
        helper.make_node("Gather", [f"{part}_emb", letters], [f"{part}_embedded"]),
        helper.make_node("Unsqueeze", [f"{part}_embedded", "axis"], [f"{part}_x"]),
        helper.make_node("GRU", inputs, ["", to], **hidden),
    ]


def speller() -> onnx.ModelProto:
    """Write the graph down: letters, int64 (n,) -> scores of the sounds, float32 (STEPS, 1, sounds)."""
    with np.load(io.BytesIO(_member("checkpoint20.npz"))) as weights:
        constants = _constants(weights)
    width, value = constants["zero"].shape[2], helper.make_tensor_value_info
    step = helper.make_graph(
        [
            *_gru("dec", "sound", "state", "next_state"),
            helper.make_node("Squeeze", ["next_state", "first"], ["row"]),
            helper.make_node("Gemm", ["row", "fc_w", "fc_b"], ["scores_now"]),
            helper.make_node("ArgMax", ["scores_now"], ["next_sound"], axis=1, keepdims=0),
            helper.make_node("Identity", ["go_on"], ["still"]),
        ],
        "step",
        [
            value("place", TensorProto.INT64, []),
            value("go_on", TensorProto.BOOL, []),
            value("sound", TensorProto.INT64, [1]),
            value("state", TensorProto.FLOAT, [1, 1, width]),
        ],
        [
            value("still", TensorProto.BOOL, []),
            value("next_sound", TensorProto.INT64, [1]),
            value("next_state", TensorProto.FLOAT, [1, 1, width]),
            value("scores_now", TensorProto.FLOAT, [1, len(SOUNDS)]),
        ],
        [numpy_helper.from_array(np.array([0], np.int64), "first")],
    )
    loop = helper.make_node(
        "Loop", ["steps", "true", "start", "read"], ["last_sound", "last_state", "scores"], body=step
    )
    graph = helper.make_graph(
        [*_gru("enc", "letters", "zero", "read"), loop],
        "g2p_en",
        [value("letters", TensorProto.INT64, ["letters"])],
        [value("scores", TensorProto.FLOAT, [STEPS, 1, len(SOUNDS)])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _feed(word: str) -> Feed:
    return {"letters": np.array([LETTERS.index(letter) for letter in (*word.lower(), "</s>")])}


def _homographs(places: Sequence[int]) -> Iterator[tuple[Feed, list[str]]]:
    """Yield the homographs whose stem is in a split, and the ways to say them."""
    for line in _member("homographs.en").decode().splitlines():
        if line.startswith("#") or line.count("|") != 3:
            continue
        word, first, second, _ = line.split("|")
        stem = re.sub(r"(ED|ES|S|ING|R|E|D)$", "", word.upper())
        if re.fullmatch("[A-Z]+", word.upper()) and zlib.crc32(stem[:5].encode()) % 10 in places:
            yield _feed(word), [first.strip(), second.strip()]


def _words(split: str) -> Iterator[tuple[Feed, list[str]]]:
    """Yield homographs; to calibrate on, words of Python's reference manual, where homographs have capitals
    only.
    """
    if split != "calibration":
        yield from _homographs(range(3) if split == "tuning" else range(3, 10))
        return
    known = {line.split("|")[0].lower() for line in _member("homographs.en").decode().splitlines()}
    words = sorted({w for s in text.sentences() for w in re.findall("[a-z]{4,}", s)} - known)
    for word in np.random.default_rng(371).permutation(words)[:64].tolist():
        yield _feed(word), []


def _distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many sounds are put in, left out or changed."""
    row = list(range(len(second) + 1))
    for place, one in enumerate(first, start=1):
        before, row[0] = row[0], place
        for column, other in enumerate(second, start=1):
            before, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, before + (one != other)),
            )
    return row[-1]


@per_feed
def count(values: Outputs, ways: Sequence[str]) -> Counts:
    """Wrong sounds of each word against the nearer way to say it, of how many; whether there is none; 1."""
    best = values[0][:, 0].argmax(axis=1).tolist()
    said = [SOUNDS[sound] for sound in (best[: best.index(END)] if END in best else best)]
    wrong, size = min((_distance(said, way.split(" ")), len(way.split(" "))) for way in ways)
    return wrong, size, wrong == 0, 1


def score(totals: np.ndarray) -> Scores:
    """One minus the wrong sounds over all; the share of words without an error beside it."""
    wrong, sounds, right, words = totals
    return Scores(max(0.0, float(1 - wrong / sounds)), {"words": right / words, "count": float(words)})


MODEL = RealModel(
    name="g2p",
    source="g2p_en",
    kind="GRU encoder and decoder, a loop",
    task="289 English homographs: one minus the share of wrong sounds, in either way to say the word",
    path=lambda folder: written_once(folder / "g2p.onnx", speller),
    samples=_words,
    splits={name: (name,) for name in ("calibration", "tuning", "evaluation")},
    count=count,
    score=score,
    helpers=("text",),
)
