"""One layer of a model is destroyed on purpose: everything that says which layer hurts names it first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.api.sources import samples_of as samples_for
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import Judge
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plan.store import load_plan, save_plan
from qprof_onnx.quantizer.planning.plan_model import open_plan
from qprof_onnx.quantizer.prepare.prepare import file_of
from qprof_onnx.quantizer.search.attribution import attribute, limits_of, samples_to_attribute_on
from qprof_onnx.quantizer.search.ranking import Group, measured_groups

CONV, SQUARE = (6, 6, 3, 3), (16, 16)


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        nodes: as ONNX text.
        weights: the shapes of its weights.
        victim: the node that is destroyed.
        weight: of it that gets 2 bits; "" for the range of a tensor.
        tensor: whose range is 30 times too narrow.
        inputs, outputs: as ONNX text.
        states: input -> output that it takes of the step before.
    """

    nodes: str
    weights: Mapping[str, tuple[int, ...]]
    victim: str
    weight: str = ""
    tensor: str = ""
    inputs: str = "float[N, 6, 8, 8] x"
    outputs: str = "float[N, 6, M, K] y"
    states: Mapping[str, str] | None = None


CNN = """[c1] a = Conv (x, w1)  [r1] b = Relu (a)  [c2] c = Conv (b, w2)  [r2] d = Relu (c)
    [c3] y = Conv (d, w3)"""
CNN_WEIGHTS = {"w1": CONV, "w2": CONV, "w3": CONV}
ROWS = {"inputs": "float[N, 16] x", "outputs": "float[N, 16] y"}

KINDS = {
    "CNN, weights": Kind(CNN, CNN_WEIGHTS, "c2", "w2"),
    "CNN, range": Kind(CNN, CNN_WEIGHTS, "c2", tensor="c"),
    "attention": Kind(
        """[q] q = MatMul (x, wq)  [k] k = MatMul (x, wk)  [v] v = MatMul (x, wv)
           [turn] kt = Transpose <perm = [0, 2, 1]> (k)  [scores] s = MatMul (q, kt)  [soft] p = Softmax (s)
           [mix] m = MatMul (p, v)  [out] y = MatMul (m, wo)""",
        {"wq": SQUARE, "wk": SQUARE, "wv": SQUARE, "wo": SQUARE},
        "v",
        "wv",
        inputs="float[N, 12, 16] x",
        outputs="float[N, 12, 16] y",
    ),
    "an output that is quantized itself": Kind(
        "[m1] a = MatMul (x, w1)  [r1] b = Relu (a)  [m2] c = MatMul (b, w2)  [turn] y = Identity (c)",
        {"w1": SQUARE, "w2": SQUARE},
        "m1",
        tensor="a",
        **ROWS,
    ),
    "two outputs": Kind(
        """[m1] a = MatMul (x, w1)  [r1] b = Relu (a)  [m2] y = MatMul (b, w2)
           [m3] c = MatMul (b, w3)  [r3] d = Relu (c)  [m4] z = MatMul (d, w4)""",
        {"w1": SQUARE, "w2": SQUARE, "w3": SQUARE, "w4": SQUARE},
        "m3",
        "w3",
        inputs="float[N, 16] x",
        outputs="float[N, 16] y, float[N, 16] z",
    ),
    "If": Kind(
        """[m1] a = MatMul (x, w1)  [r1] b = Relu (a)  [branch] c = If (yes) <
             then_branch = t () => (t_out) { [m2] t_out = MatMul (b, w2) },
             else_branch = e () => (e_out) { [m3] e_out = MatMul (b, w3) }>  [m4] y = MatMul (c, w4)""",
        {"w1": SQUARE, "w2": SQUARE, "w3": SQUARE, "w4": SQUARE},
        "m2",
        "w2",
        inputs="float[N, 16] x, bool yes",
        outputs="float[N, 16] y",
    ),
    "Loop": Kind(
        """[m1] a = MatMul (x, w1)  [r1] b = Relu (a)
           [loop] c = Loop (count, yes, b) <body = body (int64 i, bool go, float[N, 16] s) =>
             (bool g, float[N, 16] t) { g = Identity (go)  [m2] p = MatMul (s, w2)  [tanh] t = Tanh (p) }>
           [m4] y = MatMul (c, w4)""",
        {"w1": SQUARE, "w2": SQUARE, "w4": SQUARE},
        "m2",
        "w2",
        inputs="float[N, 16] x, bool yes",
        outputs="float[N, 16] y",
    ),
    "a state": Kind(
        """[m1] a = MatMul (x, w1)  [m2] b = MatMul (h, w2)  [sum] c = Add (a, b)  [tanh] hn = Tanh (c)
           [m3] d = MatMul (hn, w3)  [r3] e = Relu (d)  [m4] y = MatMul (e, w4)""",
        {"w1": SQUARE, "w2": SQUARE, "w3": SQUARE, "w4": SQUARE},
        "m2",
        "w2",
        inputs="float[1, 16] x, float[1, 16] h",
        outputs="float[1, 16] y, float[1, 16] hn",
        states={"h": "hn"},
    ),
    "LSTM with a state": Kind(
        """[m1] a = MatMul (x, w1)  [r1] b = Relu (a)
           [lstm] c, hn, cn = LSTM <hidden_size: int = 16> (b, wx, wh, bias, , h, k)
           [flat] d = Squeeze (c, one)  [m3] e = MatMul (d, w3)  [r3] f = Relu (e)
           [m4] y = MatMul (f, w4)""",
        {"w1": SQUARE, "wx": (1, 64, 16), "wh": (1, 64, 16), "bias": (1, 128), "w3": SQUARE, "w4": SQUARE},
        "m1",
        tensor="a",
        inputs="float[1, 1, 16] x, float[1, 1, 16] h, float[1, 1, 16] k",
        outputs="float[1, 1, 16] y, float[1, 1, 16] hn, float[1, 1, 16] cn",
        states={"h": "hn", "k": "cn"},
    ),
}
"""Kinds of models, each with a layer that is destroyed."""


@dataclass(frozen=True)
class Subject:
    """A model with its profile, its plan in which one node is destroyed, the model of that, and samples.

    Attributes:
        kind: of the model.
        folder: of all files.
        profile: of the model.
        data: samples, or a folder of them.
        reading: keywords that say how they are read.
    """

    kind: Kind
    folder: Path
    profile: qprof.Profile
    data: Any
    reading: dict[str, Any]

    @property
    def model(self) -> Path:
        return self.folder / "m.onnx"

    @property
    def plan(self) -> Path:
        return self.folder / "q.plan.yaml"

    @property
    def quantized(self) -> Path:
        return self.folder / "q.onnx"


def destroyed(plan: QuantPlan, kind: Kind) -> QuantPlan:
    """Return the plan in which a weight has 2 bits, or a range is 30 times too narrow."""
    name, factor = (kind.weight, 60.0) if kind.weight else (kind.tensor, 1.0 / 30.0)
    tensors = dict(plan.tensors)
    tied = {one for one, params in tensors.items() if params == tensors[name]} if kind.tensor else {name}
    for one in tied:  # what passes through has the same scale
        scale = tuple(float(np.float32(factor * step)) for step in tensors[one].scale)
        tensors[one] = replace(tensors[one], scale=scale)
    return replace(plan, tensors=tensors)


def samples_of(kind: Kind, proto: onnx.ModelProto, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return samples, or a folder of sequences with its recipe."""
    rng, sizes = np.random.default_rng(6), {"N": 4, "M": 8, "K": 8}
    shapes = {
        value.name: [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        for value in proto.graph.input
    }
    if kind.states is None:
        return [
            {
                name: np.array(True) if name == "yes" else rng.standard_normal(shape).astype(np.float32)
                for name, shape in shapes.items()
            }
            for _ in range(8)
        ], {}
    (folder / "data").mkdir()
    for number in range(3):
        steps = rng.standard_normal((12, *shapes["x"][1:])).astype(np.float32)
        np.savez(folder / "data" / f"{number}.npz", x=steps)
    states = ", ".join(f"{output}: {name}" for name, output in kind.states.items())
    (folder / "recipe.yaml").write_text(f"reader: array\nrows: split\nstate: {{{states}}}\n")
    return folder / "data", {"preprocess": folder / "recipe.yaml"}


def subject_of(kind: Kind, folder: Path) -> Subject:
    """Return a model of a kind with one node destroyed, its files in a folder."""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({kind.inputs}) => ({kind.outputs}) '
        f"<int64 count = {{3}}, int64[1] one = {{1}}> {{ {kind.nodes} }}"
    )
    rng = np.random.default_rng(5)
    for name, shape in kind.weights.items():
        array = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model = folder / "m.onnx"
    onnx.save(proto, model)
    data, reading = samples_of(kind, proto, folder)
    profile = qprof.profile(model, data, **reading)
    settings = {"cost_model": "off", "equalization": "off", "bias_correction": "off", "min_output_sqnr": 0}
    plan = destroyed(qprof.quantize(model, profile, target="onnx", **settings).plan, kind)
    save_plan(plan, folder / "q.plan.yaml")
    planned = open_plan(file_of(model).prepared, plan)
    save_model(lower(planned.model, plan).model, folder / "q.onnx")
    return Subject(kind, folder, profile, data, reading)


@pytest.fixture(scope="module", params=KINDS)
def subject(request: Any, tmp_path_factory: Any) -> Subject:
    return subject_of(KINDS[request.param], tmp_path_factory.mktemp("kind"))


def test_the_attribution_and_its_finding_name_it(subject: Subject) -> None:
    planned = open_plan(file_of(subject.model).prepared, load_plan(subject.plan))
    data = samples_for(subject.data, None, subject.reading.get("preprocess"))
    found = attribute(planned, samples_to_attribute_on(subject.model, planned, data))
    assert (found.nodes[0].name, found.nodes[0].is_run) == (subject.kind.victim, True)
    assert found.cause[0].subject == subject.kind.victim
    assert ("own state" in found.samples) == (subject.kind.states is not None)


def test_samples_that_were_judged_are_not_run_again_and_have_the_same_attribution(
    subject: Subject, monkeypatch: Any
) -> None:
    planned = open_plan(file_of(subject.model).prepared, load_plan(subject.plan))
    data = samples_for(subject.data, None, subject.reading.get("preprocess"))
    run = samples_to_attribute_on(subject.model, planned, data)
    found, limits = attribute(planned, run), limits_of(planned, run)
    files = subject.model, subject.quantized
    judged = evaluate(*files, data, measuring=Judge(latency=None), limits=limits).judged
    monkeypatch.delattr("qprof_onnx.quantizer.search.attribution.open_session")
    again = attribute(planned, samples_to_attribute_on(judged, planned, data))
    if len(run.samples) <= len(judged.floats):
        assert (again.nodes[0].name, again.samples) == (found.nodes[0].name, found.samples)
        assert again.whole[found.output].sqnr == pytest.approx(found.whole[found.output].sqnr, abs=1e-3)


def groups_of(noise: Sequence[float]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return how many groups are run in each round for one cause, and the groups that are left."""
    units, rounds = [(str(place),) for place in range(len(noise))], list[int]()

    def measure(groups: Sequence[Group]) -> dict[Group, float]:
        rounds.append(len(groups))
        return {group: sum(noise[int(name)] for (name,) in group) for group in groups}

    left = measured_groups(units, measure, lambda own: own, cause=0.25)
    return rounds, [tuple(int(name) for (name,) in group) for group in left]


def test_groups_are_split_only_while_one_node_may_be_the_cause() -> None:
    assert groups_of([1.0] * 64) == ([8], [tuple(range(at, at + 8)) for at in range(0, 64, 8)])
    rounds, left = groups_of([1.0] * 20 + [30.0] + [1.0] * 43)
    assert rounds == [8, 4, 2]
    assert (20,) in left
    rounds, _ = groups_of([1.0] * 16 + [4.0] * 8 + [1.0] * 40)  # the group adds 36 %, its parts 9
    assert rounds == [8, 4]


@pytest.mark.slow
def test_a_report_of_samples_and_one_of_the_profile_name_it(subject: Subject) -> None:
    measured = {"data": subject.data, "latency": False, **subject.reading}
    for how in (measured, {}):
        files = {"plan": subject.plan, "profile": subject.profile}
        report = qprof.report(subject.model, subject.quantized, **files, **how)
        assert report.noise[0].run_on
        assert report.noise[0].parts[0].node == subject.kind.victim


def test_the_hint_of_compare_layers_names_it(subject: Subject) -> None:
    found = qprof.compare_layers(
        subject.model, subject.quantized, subject.data, plan=subject.plan, **subject.reading
    )
    (cause,) = (finding for finding in found.findings if finding.code is Code.MAIN_CAUSE)
    assert cause.subject == subject.kind.victim
