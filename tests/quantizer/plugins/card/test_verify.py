"""All that people decide by on a card is compared with what is measured."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import qprof_onnx as qprof
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.api.made_from import MadeFrom
from qprof_onnx.quantizer.plugins.card import card as verifying
from qprof_onnx.quantizer.plugins.card.verification import Verification

RNG = np.random.default_rng(5)
FEEDS = [{"x": RNG.normal(size=(4, 16)).astype(np.float32)} for _ in range(20)]
SOURCE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 16] x) => (float[N, 10] y, float[N, 6] boxes) {
    a = Gemm (x, w)
    r = Relu (a)
    y = Gemm (r, v)
    b = MatMul (r, u)
    boxes = Mul (b, s)
}
"""

Place = tuple[str | int, ...]


class Verifier:
    """A card, and what holds changed copies of it against the files; each measurement is made once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = parser.parse_model(SOURCE)
        shapes = {"w": (16, 32), "v": (32, 10), "u": (32, 6), "s": (6,)}
        for name, shape in shapes.items():
            values = RNG.normal(0.0, 0.3, shape).astype(np.float32)
            values = np.float32([1, 1, 1, 300, 300, 300]) if name == "s" else values
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        onnx.save(model, folder / "m.onnx")
        session = qprof.profile(folder / "m.onnx", FEEDS)
        qprof.quantize(folder / "m.onnx", session, folder / "q.onnx", cost_model="off")
        floats = onnxruntime.InferenceSession(folder / "m.onnx")
        labels = np.concatenate([floats.run(["y"], feeds)[0].argmax(1) for feeds in FEEDS])
        labels[::4] = 0
        (folder / "l.txt").write_text("\n".join(map(str, labels)))
        gate = qprof.Gate(min_sqnr=90.0, max_drop=0.5)
        card = qprof.card(
            folder / "m.onnx",
            folder / "q.onnx",
            FEEDS,
            labels=folder / "l.txt",
            gate=gate,
        )
        self.folder = folder
        card.save(folder / "c.json")
        self.document = json.loads((folder / "c.json").read_text())
        measured: dict[str, qprof.Evaluation] = {}
        compare = verifying.compare

        def once(
            floats: Path, quantized: Path, data: object, judge: qprof.Judge, found: MadeFrom
        ) -> qprof.Evaluation:
            key = repr(judge)
            if key not in measured:
                timed = {"latency": card.evaluation.latency} if judge.latency else {}
                made = compare(floats, quantized, data, replace(judge, latency=None), found)
                measured[key] = replace(made, **timed)
            return measured[key]

        monkeypatch.setattr(verifying, "compare", once)

    def verify(self, document: object, **options: Any) -> Verification:
        (self.folder / "f.json").write_text(json.dumps(document))
        options = {"model": self.folder / "m.onnx", "data": FEEDS, "labels": self.folder / "l.txt", **options}
        return qprof.verify(self.folder / "f.json", self.folder / "q.onnx", **options)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Verifier(tmp_path_factory.mktemp("verify"), monkeypatch)


def changed(document: object, place: Place, value: object) -> Any:
    made: Any = copy.deepcopy(document)
    parent = made
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = value
    return made


def test_an_unchanged_card_is_verified(verifier: Verifier) -> None:
    assert verifier.verify(verifier.document).complete


def test_what_is_not_so_is_refused_also_where_not_strict(verifier: Verifier) -> None:
    forged: dict[Place, object] = {
        ("score", "rows"): 1,
        ("score", "float_score"): 100.0,
        ("score", "quantized_score"): 100.0,
        ("score", "drop"): -20.0,
        ("score", "drop_low"): -25.0,
        ("score", "drop_high"): 0.1,
        ("outputs", 0, "agreement", "ratio"): 2.0,
        ("outputs", 0, "difference", "sqnr"): "nan",
        ("outputs", 1, "difference", "sqnr"): 90.0,
        ("quantized_bytes",): 10,
        ("float_bytes",): 10**9,
        ("samples",): 2000,
        ("provenance", "estimated_sqnr", "y"): 90.0,
        ("provenance", "quantized_nodes"): 100,
    }
    assert [
        p
        for p, value in forged.items()
        if verifier.verify(changed(verifier.document, ("evaluation", *p), value)).passed
    ] == []


def test_what_a_card_claims_does_not_make_the_tolerance_wider(verifier: Verifier) -> None:
    document = copy.deepcopy(verifier.document)
    document["evaluation"]["score"].update(rows=1, float_score=0.0, quantized_score=100.0)
    differing = {check.of for check in verifier.verify(document).checks if check.result == "differs"}
    assert {"truth", "accuracy of the float model"} <= differing


def test_a_limit_that_is_not_kept_is_refused_whatever_a_card_says(verifier: Verifier) -> None:
    assert not verifier.verify(changed(verifier.document, ("evaluation", "failures"), [])).passed


def test_a_value_of_another_type_is_an_error_that_names_it(verifier: Verifier) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.score\.rows"):
        verifier.verify(changed(verifier.document, ("evaluation", "score", "rows"), "many"))


def test_one_row_more_or_less_is_the_same_accuracy(verifier: Verifier) -> None:
    a = verifier.document["evaluation"]["score"]
    row = 100.0 / a["rows"]
    turned = {**a, "quantized_score": a["quantized_score"] - row, "drop": a["drop"] + row}
    result = verifier.verify(changed(verifier.document, ("evaluation", "score"), turned))
    assert [check.of for check in result.checks if check.result == "differs"] == []
