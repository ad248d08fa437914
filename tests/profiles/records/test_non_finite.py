"""NaN and Inf that were left out of profiles: the report, the gate, and what runs tell one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.profiles.records.non_finite import gate_failure, non_finite_finding
from qprof_onnx.profiles.records.profile import ModelId, Profile
from qprof_onnx.profiles.records.store import dumps, loads
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.plugins.cluster.cluster import dumps_shard, loads_shard, merged_texts

ID = ModelId("structure", "weights", 13)
NET = """<ir_version: 8, opset_import: ["": 13]>
    net (float[N, 4] x) => (float[N, 4] z) { [log] y = Log (x) [neg] w = Neg (x) [sum] z = Add (y, w) }"""


def samples(values: dict[str, Sequence[float]]) -> list[Sample]:
    return [Sample(name, {"x": np.array([row], np.float32)}) for name, row in values.items()]


VALUES = {"a1": [1, 1, 1, 1], "a10": [0, 1, 1, 1], "a2": [1, 0, -1, 1], "a3": [1, 1, 1, 1]}
SENTENCE = (
    "NaN or Inf in 2 tensors, left out of ranges and histograms; first in sample a2: "
    "tensor 'y' (Log node 'log') contains 1 NaN and 1 Inf among 4 elements; "
    "most in tensor 'y': 18.8 % of its elements"
)


def profiled(values: dict[str, Sequence[float]], **settings: object) -> Profile:
    run = RunSettings(channels="off", **settings)  # type: ignore[arg-type]
    return calibrate(ir.from_proto(onnx.parser.parse_model(NET)), samples(values), ID, run)


def told(profile: Profile) -> tuple[str, ...]:
    """Return what is said of NaN and Inf."""
    return tuple(finding.text for finding in profile.findings if finding.code is Code.NON_FINITE)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_sample_in_natural_order_and_its_first_node_are_named(threads: int) -> None:
    assert told(profiled(VALUES, threads=threads)) == (SENTENCE,)


def test_the_order_of_the_samples_does_not_matter() -> None:
    assert told(profiled(dict(reversed(VALUES.items())))) == (SENTENCE,)


def test_finite_values_need_no_report() -> None:
    found = profiled({"a1": [1, 2, 3, 4]})
    assert (told(found), gate_failure(found, 0.0)) == ((), None)


def test_the_report_is_in_what_a_profile_shows() -> None:
    assert SENTENCE in profiled(VALUES).to_markdown()


def test_shards_tell_what_they_remember() -> None:
    half = [dict(list(VALUES.items())[part]) for part in (slice(2), slice(2, None))]
    texts = [dumps_shard(profiled(values), []) for values in half]
    merged, _ = loads_shard(merged_texts(*texts))
    assert told(merged) == (SENTENCE,)


def test_a_profile_from_a_file_tells_tensors_alone() -> None:
    (note,) = told(loads(dumps(profiled(VALUES))))
    assert note == (
        "NaN or Inf in 2 tensors, left out of ranges and histograms; the first is 'y'; "
        "most in tensor 'y': 18.8 % of its elements"
    )


def test_what_the_run_remembers_is_not_in_the_file() -> None:
    other = {name.replace("a", "b"): row for name, row in VALUES.items()}
    assert dumps(profiled(VALUES)) == dumps(profiled(other))


@pytest.mark.parametrize(("limit", "fails"), [(0.1875, False), (0.18, True), (1.0, False), (0.0, True)])
def test_the_gate_compares_the_share_of_the_worst_tensor(limit: float, fails: bool) -> None:
    failure = gate_failure(profiled(VALUES), limit)
    assert (failure is not None) == fails
    said = "" if failure is None else failure.sentence
    assert failure is None or "tensor 'y': 18.8 % of its elements are NaN or Inf, more" in said


def test_a_tensor_of_nothing_but_infinity_is_a_filler_and_passes_the_gate() -> None:
    found = profiled({"a": [0, 0, 0, 0]})
    note = non_finite_finding(found)
    assert note is not None
    assert note.sentence.startswith("NaN or Inf in 2 tensors, left out")
    assert "most in tensor" not in note.sentence
    assert gate_failure(found, 0.0) is None


def test_a_tensor_of_nothing_but_nan_fails() -> None:
    assert gate_failure(profiled({"a": [-1, -1, -1, -1]}), 0.9) is not None
