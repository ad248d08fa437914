"""The benchmarks' own arithmetic (bootstrap, boxes, ncnn's files) and commands. Nothing is measured here."""

from __future__ import annotations

import importlib
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

FOLDER = Path(__file__).parent / "benchmarks"


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("bootstrap")


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("boxes")


@pytest.fixture
def ncnn(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("ncnn")


def share(totals: np.ndarray) -> float:
    return float(totals[0] / totals[1])


def told(right: np.ndarray) -> np.ndarray:
    return np.stack([right, np.ones(len(right))], axis=1)


def test_the_bootstrap_interval_has_the_width_that_the_theory_of_proportions_gives(
    bootstrap: ModuleType,
) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random(400) < 0.9, rng.random(400) < 0.8
    found = bootstrap.difference(told(one), told(other), share)
    gaps = one.astype(float) - other.astype(float)
    half = 196 * gaps.std() / len(gaps) ** 0.5
    assert found.points == pytest.approx(100 * gaps.mean())
    # 4000 draws leave the ends of the interval uncertain by some hundredths of its width.
    assert found.low == pytest.approx(found.points - half, abs=0.15 * half)
    assert found.high == pytest.approx(found.points + half, abs=0.15 * half)


def test_models_that_answer_alike_differ_by_nothing_whatever_is_drawn(bootstrap: ModuleType) -> None:
    units = told(np.random.default_rng(1).random(50) < 0.5)
    assert bootstrap.difference(units, units, share) == bootstrap.Difference(0.0, 0.0, 0.0)


def test_the_bootstrap_refuses_models_that_were_judged_on_other_samples(bootstrap: ModuleType) -> None:
    with pytest.raises(ValueError, match="other samples"):
        bootstrap.difference(told(np.ones(3)), told(np.ones(4)), share)


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        ((-0.1, -0.4, 0.2), "yes"),
        ((-0.1, -0.8, 0.4), "yes ?"),
        ((-0.9, -1.2, -0.6), "no"),
        ((-0.6, -1, 0), "no ?"),
    ],
)
def test_a_verdict_says_whether_the_samples_settle_it(
    bootstrap: ModuleType, gap: tuple[float, float, float], said: str
) -> None:
    assert bootstrap.Difference(*gap).within(0.5) == said


def test_overlaps_are_shared_area_over_joined_area(boxes: ModuleType) -> None:
    some = np.array([[0.0, 0.0, 2.0, 2.0]])
    others = np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0], [2.0, 0.0, 4.0, 2.0]])
    assert boxes.overlaps(some, others)[0] == pytest.approx([1.0, 1 / 7, 0.0])


def test_suppression_keeps_the_best_of_boxes_on_one_thing(boxes: ModuleType) -> None:
    found = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30]], np.float64)
    assert boxes.suppressed(found, np.array([0.5, 0.9, 0.7]), 0.45).tolist() == [1, 2]


def test_a_box_is_matched_once(boxes: ModuleType) -> None:
    assert boxes.matched(np.array([[0.9], [0.8]]), 0.5) == 1
    assert boxes.matched(np.zeros((0, 3)), 0.5) == 0


def test_f1_of_nothing_to_find_is_whole_only_when_nothing_was_given(boxes: ModuleType) -> None:
    assert boxes.f1(np.array([0, 0, 0])).value == 1.0
    assert boxes.f1(np.array([0, 2, 0])).value == 0.0
    assert boxes.f1(np.array([2, 3, 5])).value == pytest.approx(0.5)


def test_an_ncnn_net_becomes_onnx_that_computes_it(ncnn: ModuleType, tmp_path: Path) -> None:
    param = tmp_path / "net.param"
    layers = [
        "Input data 0 1 data",
        "Split s 1 2 data a b",
        "Convolution c 1 1 a c 0=12 1=3 4=1 5=1 6=324",
        "PReLU p 1 1 c p 0=12",
        "PixelShuffle d 1 1 p d 0=2",
        "Interp r 1 1 b r 0=1 1=2.000000e+00 2=2.000000e+00",
        "BinaryOp add 2 1 d r output",
    ]
    param.write_text("7767517\n7 8\n" + "\n".join(layers), encoding="ascii")
    weights = np.zeros((12, 3, 3, 3), np.float16)
    weights[np.arange(12), np.arange(12) // 4, 1, 1] = -1  # the channel of each of the four small pixels
    bias, slope = np.full(12, 0.25, "<f4"), np.full(12, 0.5, "<f4")
    half = (0x01306B47).to_bytes(4, "little")
    param.with_suffix(".bin").write_bytes(half + weights.tobytes() + bias.tobytes() + slope.tobytes())
    model = ncnn.to_onnx(param).SerializeToString()
    image = np.random.default_rng(2).random((1, 3, 4, 5), np.float32)
    (found,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"image": image})
    large = image.repeat(2, axis=2).repeat(2, axis=3)
    linear = 0.25 - large
    # Sums of a few float32 in another order.
    np.testing.assert_allclose(found, np.where(linear > 0, linear, 0.5 * linear) + large, rtol=0, atol=1e-6)


def test_an_ncnn_layer_that_is_not_known_is_refused_by_name(ncnn: ModuleType, tmp_path: Path) -> None:
    param = tmp_path / "net.param"
    param.write_text("7767517\n2 2\nInput data 0 1 data\nSoftmax s 1 1 data out 0=0\n", encoding="ascii")
    param.with_suffix(".bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"net\.param: layer Softmax"):
        ncnn.to_onnx(param)


def commands(text: str) -> list[list[str]]:
    """Return the words of each command of run.py that a text names; what stands three spaces behind one is
    told.
    """
    found = re.findall(r"python tests/benchmarks/run\.py ([^`\n]+)", text)
    return [shlex.split(words.split("   ")[0]) for words in found]


@pytest.fixture(scope="module")
def runner() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module("run")


def texts() -> Iterator[tuple[str, str]]:
    pages = [*FOLDER.glob("*.md"), *(FOLDER / "stages").glob("*.py"), FOLDER / "run.py"]
    for path in [*pages, *(FOLDER.parents[1] / "docs").rglob("*.md"), FOLDER.parents[1] / "README.md"]:
        yield path.name, path.read_text(encoding="utf-8")


def test_every_command_of_the_benchmarks_that_is_named_starts(runner: ModuleType) -> None:
    wrong = []
    for name, text in texts():
        for words in commands(text):
            try:
                runner.parser_of(words[0]).parse_intermixed_args(words[1:])
            except ModuleNotFoundError:
                continue  # the packages of this stage are not installed
            except (SystemExit, KeyError) as problem:
                if not (isinstance(problem, SystemExit) and problem.code == 0):
                    wrong.append(f"{name}: {' '.join(words)}")
    assert not wrong


@pytest.fixture(scope="module")
def blocks(runner: ModuleType) -> list[tuple[str, str, str, str]]:
    """Return the tables of all pages: the page, the name, its digest, and what stands there."""
    frame = importlib.import_module("frame")
    texts = {page.name: page.read_text(encoding="utf-8") for page in frame.pages()}
    return [(page, *found.groups()) for page, text in texts.items() for found in frame.BLOCK.finditer(text)]


def test_every_table_of_a_page_is_as_it_was_written(blocks: list[tuple[str, str, str, str]]) -> None:
    digest = importlib.import_module("frame").digest
    assert blocks
    edited = [f"{page}: {name}" for page, name, known, text in blocks if known != digest(text)]
    assert not edited, "tables are written by run.py --write alone"


def test_every_table_of_a_page_has_a_stage_that_makes_it(
    runner: ModuleType, blocks: list[tuple[str, str, str, str]]
) -> None:
    pytest.importorskip("tokenizers", reason="of the extra test-all")
    made = {name for stage in runner.OF_PAGES for name in runner.load(stage)[0].tables}
    assert {name for _, name, _, _ in blocks} <= made


def test_a_table_is_put_between_its_marks_alone(runner: ModuleType, tmp_path: Path) -> None:
    frame = importlib.import_module("frame")
    page, mark = tmp_path / "page.md", "<!-- table {} -->\nold\n<!-- end -->\n"
    page.write_text(f"before\n{mark.format('one')}between\n{mark.format('other')}after\n", encoding="utf-8")
    frame.write_block(page, "one", "new")
    frame.write_block(page, "one", "newer")
    text = page.read_text(encoding="utf-8")
    assert [found.groups() for found in frame.BLOCK.finditer(text)] == [
        ("one", frame.digest("newer"), "\nnewer\n\n"),
        ("other", None, "old\n"),
    ]
    assert text.startswith("before\n<!--")
    assert "-->\nbetween\n<!--" in text
    assert text.endswith("-->\nafter\n")


def test_a_subject_without_rows_keeps_those_that_are_known(
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = importlib.import_module("frame")
    monkeypatch.setenv(frame.WORK, "")  # it is set while a stage runs
    made = [[{"figure": 1}], []]
    stage = frame.Stage(lambda subject, given: iter(made.pop(0)), {"t": lambda rows: str(dict(rows))}, ("a",))
    given = Namespace(work=tmp_path, known=False, subjects=[], parts=["score"], jobs=2, write=False)
    for _ in range(2):
        frame.run("s", stage, given)
        assert "{'a': [{'figure': 1}]}" in capsys.readouterr().out


@pytest.fixture
def models_stage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("stages.models")


def row_of(points: float, ratio: float, predicted: float, peer: float) -> list[dict[str, Any]]:
    """Return the row of a model that is so many points above float, and above its peer."""
    ours = {
        "error": None,
        "size": 500_000,
        "steps": [[1.0, 100.0], [2.0, 90.0]],
        "score": 0.9,
        "points": {"points": points, "low": points - 0.1, "high": points + 0.1},
        "sqnr": {"y": 30.0},
        "bands": {"y": [20.0, 40.0]},
        "predicted": predicted,
        "time": {"ms": ratio, "ratio": ratio, "quartiles": [ratio, ratio]},
    }
    row = {
        "kind": "classifier",
        "source": "here",
        "task": "share told right",
        "size": 2_000_000,
        "score": 0.9,
        "setting": "minmax-tensor",
        "float": {"float": {"ms": 1.0}},
        "inference": 0.5,
        "beside": {"onnxruntime": {"points": peer}},
        "variants": {**dict.fromkeys(("qprof", "qprof-data", "onnxruntime"), ours), "nncf": {"error": "no"}},
    }
    return [row]


def test_sentences_count_what_the_rows_say(models_stage: ModuleType) -> None:
    figures = {"a": (0.1, 0.5, 0.55, 0.2), "b": (-1.0, 0.5, 0.5, -0.3), "c": (0.0, 0.5, 0.4, 0.0)}
    rows = {name: row_of(*some) for name, some in figures.items()}
    said = models_stage.summary(rows)
    assert "a profile alone 2 of 3 trained models" in said
    assert "3 models take 0.50 of float's time" in said
    assert "better score on 1 of 3 models for which there is one, an equal one on 1, a worse one on 1" in said
    assert models_stage.predictions(rows).startswith("Of 3 models the predicted ratio to float is off by 10%")
    assert models_stage.bands(rows).startswith("Of 3 outputs 3 have")


def test_tables_have_a_cell_for_each_heading(models_stage: ModuleType) -> None:
    rows = {"a": row_of(0.1, 0.5, 0.55, 0.2)}
    for name, text_of in models_stage.STAGE.tables.items():
        widths = {line.count("|") for line in text_of(rows).splitlines() if line.startswith("|")}
        assert len(widths) <= 1, name


@pytest.fixture
def stage_told(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("stages.told")


def told_of(sqnr: float, points: tuple[float, float, float] | None, **told: Any) -> dict[str, Any]:
    """Return a row: an output `y` of so many dB, and its points above float with their interval."""
    output = {"sqnr": sqnr, "equal": None, "non finite": 0, "dead": 0}
    gap = None if points is None else dict(zip(("points", "low", "high"), points, strict=True))
    said = {"exit": 0, "grade": None, "alarms": [], "outputs": {}, **told}
    return {"told": said, "true": {"outputs": {"y": output}, "score": 0.9, "difference": gap}}


BAND = {"y": {"estimated": 30.0, "low": 20.0, "high": 40.0}}
MEASURED = {"y": {"estimated": 30.0, "low": 20.0, "high": 40.0, "measured": 25.0, "wanted": 20.0}}


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (told_of(31.0, (-0.3, -0.9, 0.1), outputs=BAND), set()),
        (told_of(31.0, (-2.0, -3.0, -0.6), outputs=BAND), {"points"}),
        (told_of(31.0, (-2.0, -3.0, -0.6), outputs=BAND, exit=1), set()),
        (told_of(19.5, None, outputs=BAND), set()),
        (told_of(18.5, None, outputs=BAND), {"told"}),
        (told_of(22.5, None, outputs=MEASURED, grade="good"), set()),
        (told_of(21.5, None, outputs=MEASURED, grade="good"), {"told"}),
        (told_of(19.0, None, outputs=MEASURED, grade="good"), {"told", "wanted"}),
        (told_of(2.0, (-0.4, -0.9, 0.1), outputs=MEASURED, grade="poor"), {"poor"}),
        (told_of(2.0, (-4.0, -5.0, -3.0), outputs=MEASURED, grade="poor"), set()),
        (told_of(2.0, None, outputs=MEASURED, alarms=["not finite"]), set()),
    ],
)
def test_what_is_told_falsely_is_seen_on_the_side_where_it_is_false(
    stage_told: ModuleType, row: dict[str, Any], kinds: set[str]
) -> None:
    assert set(stage_told.faults(row)) == kinds


def test_what_an_output_needs_is_known_from_another_path(stage_told: ModuleType) -> None:
    assert set(stage_told.faults(told_of(21.0, None, outputs=BAND), {"y": 24.0})) == {"wanted"}


def test_columns_that_die_and_values_that_are_not_finite_are_counted_beside_float(
    stage_told: ModuleType, tmp_path: Path
) -> None:
    def watched(*samples: Sequence[float]) -> Any:
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "g",
            *([helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3])] for name in "xy"),
        )
        file = tmp_path / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
        session = stage_told.Watched(file, 1)
        for sample in samples:
            session.run(None, {"x": np.array([sample], np.float32)})
        return session

    judged = importlib.import_module("record").Judged(None, {"y": 10.0})
    plain = judged, watched((0.0, 1.0, 2.0), (3.0, 1.0, 0.0))
    found = judged, watched((0.0, 1.0, 2.0), (0.0, 1.0, np.inf))
    true = stage_told._truth(None, found, plain)["outputs"]["y"]
    assert true == {"sqnr": 10.0, "equal": 0.5, "non finite": 1, "dead": 1}
