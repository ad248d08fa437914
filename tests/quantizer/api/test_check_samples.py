"""Check samples of a profile: the same bytes however the data come, and what runs on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import qprof_onnx as qprof
from qprof_onnx.profiles.base.findings import Code

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


def rows() -> list[np.ndarray]:
    batches = [np.load(path)["image"] for path in sorted((DIGITS / "calibration").glob("*.npz"))]
    return [row[None] for batch in batches for row in batch]


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("p.yaml", "p.samples.npz")]


def profiled(folder: Path, rows: dict[str, np.ndarray], **run: object) -> list[bytes]:
    """Return the bytes of a profile of files, and of its check samples."""
    (folder / "data").mkdir(parents=True)
    for name, row in rows.items():
        np.savez(folder / "data" / name, image=row)
    qprof.profile(MODEL, folder / "data", folder / "p.yaml", **run)  # type: ignore[arg-type]
    return files(folder)


def shard(number: int) -> dict[str, np.ndarray]:
    return {f"{at:02d}": row for at, row in enumerate(rows()) if at % 3 == number or number < 0}


def test_order_and_threads_change_no_byte_of_the_samples(tmp_path: Path) -> None:
    expected = profiled(tmp_path / "all", shard(-1), threads=1)
    assert profiled(tmp_path / "threads", shard(-1), threads=2) == expected
    qprof.profile(MODEL, rows()[::-1], tmp_path / "p.yaml")
    assert files(tmp_path)[1] == expected[1]


def test_merged_shards_have_the_bytes_of_one_run(tmp_path: Path) -> None:
    expected = profiled(tmp_path / "all", shard(-1))
    for number in range(3):
        profiled(tmp_path / str(number), shard(number))
    (tmp_path / "merged").mkdir()
    qprof.merge([tmp_path / name / "p.yaml" for name in "201"], tmp_path / "merged" / "p.yaml")
    assert files(tmp_path / "merged") == expected


def test_a_shard_without_its_samples_leaves_the_merged_profile_without(tmp_path: Path) -> None:
    for number in range(2):
        profiled(tmp_path / str(number), shard(number))
    (tmp_path / "1" / "p.samples.npz").unlink()
    merged = qprof.merge([tmp_path / name / "p.yaml" for name in "01"], tmp_path / "m.yaml")
    assert (merged.check_samples, (tmp_path / "m.samples.npz").exists()) == ((), False)
    assert merged.data.samples == 43


def test_random_values_are_not_kept(tmp_path: Path) -> None:
    profile = qprof.profile(MODEL, "random:4", tmp_path / "p.yaml")
    assert (profile.check_samples, (tmp_path / "p.samples.npz").exists()) == ((), False)


def test_what_travels_with_a_model_holds_no_sample(tmp_path: Path) -> None:
    profile = qprof.profile(MODEL, DIGITS / "calibration", tmp_path / "p.yaml")
    result = qprof.quantize(MODEL, profile, tmp_path / "q.onnx", save_plan=tmp_path / "q.plan.yaml")
    qprof.card(MODEL, result, DIGITS / "heldout", latency=None).save(tmp_path / "card.json")
    result.save(tmp_path / "result.json")
    assert '"format": "qprof-quantization/1"' in (tmp_path / "result.json").read_text()
    held = profile.held_samples[0].arrays["image"]
    for path in tmp_path.iterdir():
        if path.name != "p.samples.npz":
            assert held.tobytes() not in path.read_bytes()
            assert profile.held_samples[0].digest not in path.read_text("latin-1") or path.name == "p.yaml"


def test_a_model_that_ran_on_samples_is_not_told_to_be_untried() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x, int64[2] s) => (float[M,4] y) '
        "{ r = Reshape (x, s) y = MatMul (r, w) }"  # no inputs can be made up
    )
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 4)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    samples = [{"x": rng.normal(size=(1, 8)).astype(np.float32), "s": np.array([2, 4])} for _ in range(8)]
    profile = qprof.profile(proto, samples)
    planned = qprof.quantize(proto, profile, cost_model="off")
    again = qprof.quantize(proto, profile, plan=planned.plan)
    assert planned.checks
    assert not {Code.NOT_TEST_RUN} & {finding.code for finding in (*planned.findings, *again.findings)}
