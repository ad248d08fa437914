"""Every value on a card is compared with what is measured, or named as not checked."""

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
            task="some-task",
            base_model="some/model",
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

    def takes(self, document: object) -> bool:
        """Return whether all of it is verified; a refusal in a sentence is the other way to say no."""
        try:
            return self.verify(document).complete
        except qprof.QprofError as problem:
            return "\n" in str(problem)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifier]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Verifier(tmp_path_factory.mktemp("verify"), monkeypatch)


def leaves(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    if not items and not isinstance(value, dict | list):
        yield place, value
    for key, item in items:
        yield from leaves(item, (*place, key))


def changed(document: object, place: Place, value: object) -> Any:
    made: Any = copy.deepcopy(document)
    parent = made
    for step in place[:-1]:
        parent = parent[step]
    if value is DELETED:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    return made


DELETED = object()


def others(value: object) -> Iterator[object]:
    """Yield what may stand in the place of a value: far off, of another type, nonsense, nothing."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value * 1000 + 977, -value * 1000 - 977, type(value)(1e308))
    elif isinstance(value, str):
        yield f"{value}, and more"
    yield from (DELETED, "nan", "inf", "text", 10**40, None, [[1]])


def test_an_unchanged_card_is_verified(verifier: Verifier) -> None:
    result = verifier.verify(verifier.document)
    assert result.passed
    open_checks = {check.of for check in result.checks if check.result != "same"}
    assert open_checks == {"task", "base_model"}
    assert not result.complete
    plain = verifier.verify({**verifier.document, "task": "", "base_model": ""})
    assert plain.complete


@pytest.mark.slow
def test_each_value_of_a_card_that_is_changed_is_refused_or_named_as_not_checked(verifier: Verifier) -> None:
    passed = []
    plain = {**verifier.document, "task": "", "base_model": ""}
    for place, value in leaves(plain):
        if place[:2] == ("evaluation", "gate"):
            continue  # another limit is another statement, true or not: see below
        if any(isinstance(step, int) and step > 0 for step in place):
            continue  # as the first of its list
        for other in others(value):
            if other == value and isinstance(other, bool) == isinstance(value, bool):
                continue
            if verifier.takes(changed(plain, place, other)):
                passed.append((place, value, other))
    assert not passed


def test_what_is_not_so_is_refused_also_where_not_strict(verifier: Verifier) -> None:
    forged: dict[Place, object] = {
        ("score", "rows"): 1,
        ("score", "float_score"): 100.0,
        ("score", "quantized_score"): 100.0,
        ("score", "drop"): -20.0,
        ("score", "drop_low"): -25.0,
        ("score", "drop_high"): 0.1,
        ("outputs", 0, "agreement", "ratio"): 2.0,
        ("outputs", 0, "agreement", "total"): 7,
        ("outputs", 0, "difference", "max_abs_value"): 0.0,
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
    assert {"evaluation.score.rows", "accuracy of the float model"} <= differing


def test_a_limit_that_is_not_kept_is_refused_whatever_a_card_says(verifier: Verifier) -> None:
    at = ("evaluation", "gate", "min_sqnr")
    assert not verifier.verify(changed(verifier.document, at, 70.0)).passed
    assert not verifier.verify(changed(verifier.document, ("evaluation", "failures"), [])).passed


def test_keys_that_nobody_knows_are_named(verifier: Verifier) -> None:
    for place in (
        ("seal",),
        ("evaluation", "medal"),
        ("evaluation", "outputs", 0, "stars"),
        ("evaluation", "input_ranges"),
    ):
        result = verifier.verify(changed(verifier.document, place, {}))
        assert not result.complete
        assert any(check.result == "not checked" and str(place[-1]) in check.of for check in result.checks)


def test_another_machine_and_another_version_are_named_and_refute_nothing(verifier: Verifier) -> None:
    for place in (("tool",), ("machine", "processor"), ("machine", "runtime")):
        result = verifier.verify(changed(verifier.document, place, "another"))
        assert result.passed
        assert [check.of for check in result.checks if check.of == ".".join(place)]


def test_a_value_of_another_type_is_an_error_that_names_it(verifier: Verifier) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.score\.rows"):
        verifier.verify(changed(verifier.document, ("evaluation", "score", "rows"), "80"))


def test_one_row_more_or_less_is_the_same_accuracy(verifier: Verifier) -> None:
    a = verifier.document["evaluation"]["score"]
    row = 100.0 / a["rows"]
    turned = {**a, "quantized_score": a["quantized_score"] - row, "drop": a["drop"] + row}
    result = verifier.verify(changed(verifier.document, ("evaluation", "score"), turned))
    assert [check.of for check in result.checks if check.result == "differs"] == []
