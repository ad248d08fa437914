"""Progress on disk: a run that is killed goes on where it was, to the same bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.records.profile import ModelId, Profile
from qprof_onnx.profiles.records.store import dumps
from qprof_onnx.profiles.runner import checkpoint as checkpoint_module
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.checkpoint import RunId, RunProgress, load_progress, save_progress
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.samples import Sample, Samples
from qprof_onnx.quantizer.pipeline.profiling import dump_profile

ID = ModelId("structure", "weights", 13)

NET = """<ir_version: 8, opset_import: ["": 13]>
    net (float[N, 4, 16, 16] x) => (float[N, 32] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        r = Relu (c)
        t = Tanh (r)
        p = GlobalAveragePool (t)
        y = Flatten (p)
    }"""

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def conv_net() -> ir.Model:
    proto = onnx.parser.parse_model(NET)
    weight = np.random.default_rng(0).standard_normal((32, 4, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def images(number: int = 6) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [
        Sample(f"{i}.npz", {"x": rng.standard_normal((1 + i % 2, 4, 16, 16), np.float32)})
        for i in range(number)
    ]


class KilledError(Exception):
    """Stands for the end of the process."""


def samples_of(items: list[Sample], stop: int | None = None, seen: list[str] | None = None) -> Samples:
    """Return samples that end with an error before number `stop`; `seen` collects those that were read."""

    def iterate(part: slice) -> Iterator[Sample]:
        for number in range(len(items))[part]:
            if number == stop:
                raise KilledError
            if seen is not None:
                seen.append(items[number].name)
            yield items[number]

    return Samples("images", len(items), iterate)


def run(path: Path, stop: int | None = None, seen: list[str] | None = None, **settings: Any) -> Profile:
    chosen = {"channels": "off", "checkpoint": path, "every": 0.0, **settings}
    return calibrate(conv_net(), samples_of(images(), stop, seen), ID, RunSettings(**chosen))


@pytest.mark.parametrize("stop", [1, 3, 5])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_goes_on_where_it_was(tmp_path: Path, stop: int, threads: int) -> None:
    with pytest.raises(KilledError):
        run(tmp_path / "c", stop, threads=threads)
    seen: list[str] = []
    resumed = run(tmp_path / "c", seen=seen, threads=threads)
    assert dumps(resumed) == dumps(calibrate(conv_net(), images(), ID))
    assert seen == [sample.name for sample in images()[stop:]]


@pytest.mark.parametrize("stop", [1, 4])
def test_a_run_with_channels_goes_on_where_it_was(tmp_path: Path, stop: int) -> None:
    axes = {"x": 1, "p": 1}
    with pytest.raises(KilledError):
        run(tmp_path / "c", stop, channels=axes)
    found = run(tmp_path / "c", channels=axes)
    assert dumps(found) == dumps(calibrate(conv_net(), images(), ID, RunSettings(channels=axes)))
    assert found["p"].channels is not None


def test_passes_go_on_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qprof_onnx.profiles.runner.memory_plan.used_bytes", lambda: 1000)
    expected = dumps(calibrate(conv_net(), images(), ID))
    place = tmp_path / "c"
    for reads in (8, 9, 9):  # six of them to find the largest
        left = [reads]

        def iterate(part: slice, left: list[int] = left) -> Iterator[Sample]:
            for sample in images()[part]:
                left[0] -= 1
                if left[0] < 0:
                    raise KilledError
                yield sample

        samples = Samples("images", 6, iterate)
        with pytest.raises(KilledError):
            calibrate(
                conv_net(),
                samples,
                ID,
                RunSettings(channels="off", memory_limit=81000, checkpoint=place, every=0.0),
            )
    assert json.loads(place.read_text().splitlines()[0])["passes"] > 0
    samples = samples_of(images())
    assert (
        dumps(
            calibrate(
                conv_net(),
                samples,
                ID,
                RunSettings(channels="off", memory_limit=81000, checkpoint=place, every=0.0),
            )
        )
        == expected
    )


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = run(tmp_path / "c")
    seen: list[str] = []
    assert dumps(run(tmp_path / "c", seen=seen)) == dumps(first)
    assert seen == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"non_finite": "error"}, 'belongs to a run with non_finite "skip", not "error"'),
        ({"tensors": ["c"]}, "belongs to a run with tensors"),
        ({"channels": {"x": 1}}, "belongs to a run with channels"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    run(tmp_path / "c")
    with pytest.raises(ProfileError, match=message) as caught:
        run(tmp_path / "c", **settings)
    assert "remove the file to start over" in str(caught.value)


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "c"
    run(place)
    with pytest.raises(ProfileError, match="belongs to a run with model"):
        calibrate(
            conv_net(),
            images(),
            ModelId("other", "weights", 13),
            RunSettings(channels="off", checkpoint=place, every=0.0),
        )


@pytest.mark.parametrize("content", ["", "{}\n", "not json\n", '{"format": "qprof-checkpoint/9"}\n'])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "c").write_text(content)
    with pytest.raises(ProfileError, match="is not a checkpoint of this version; remove the file"):
        run(tmp_path / "c")


def test_a_checkpoint_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "c")
    text = (tmp_path / "c").read_text()
    (tmp_path / "c").write_text(text[: len(text) // 2])
    with pytest.raises(ProfileError, match=r"c: .*"):
        run(tmp_path / "c")


def test_progress_is_written_when_it_is_time_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    now = [0.0]
    save = checkpoint_module.save_progress

    def noted(place: Path, which: RunId, progressed: RunProgress) -> None:
        written.append(progressed.samples)
        save(place, which, progressed)

    def tick(done: int, total: int | None) -> None:
        now[0] += 10.0

    monkeypatch.setattr("qprof_onnx.profiles.runner.checkpoint.save_progress", noted)
    monkeypatch.setattr("qprof_onnx.profiles.runner.checkpoint.time.monotonic", lambda: now[0])
    samples = samples_of(images(10))
    calibrate(
        conv_net(),
        samples,
        ID,
        RunSettings(channels="off", threads=1, checkpoint=tmp_path / "c", every=25.0),
        progress=tick,
    )
    assert written == [4, 8]  # 40 s after the start, and 40 s later
    assert load_progress(tmp_path / "d", RunId(ID, "images", 6)) == RunProgress()


def test_saving_and_loading_progress_give_the_same(tmp_path: Path) -> None:
    place, which = tmp_path / "c", RunId(ID, "images", 6, {"tensors": ["a"]})
    progressed = RunProgress(1, 3, calibrate(conv_net(), images(2), ID))
    save_progress(place, which, progressed)
    assert load_progress(place, which) == progressed


# ------------------------------------------------------------------------------------------------- SIGKILL


def done(path: Path) -> int:
    """Return how many feeds a checkpoint holds; 0 when there is none."""
    try:
        return int(json.loads(path.read_text().splitlines()[0])["done"])
    except FileNotFoundError:
        return 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_at_random_moments_the_same_command_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Five kills: the first while the program starts, the others up to 0.1 s after it has made progress."""
    data, files = tmp_path / "data", sorted((DIGITS / "calibration").glob("*.npz"))
    data.mkdir()
    for number in range(240):
        os.link(files[number % len(files)], data / f"{number}.npz")
    dump_profile(DIGITS / "model.onnx", data, tmp_path / "undisturbed.yaml")
    keeper, output = tmp_path / "progress.qprof", tmp_path / "killed.yaml"
    options = ["--data", data, "-o", output, "--checkpoint", keeper, "--every", "0"]
    code = "from qprof_onnx.cli.main import main; main(prog_name='qprof')"
    command = [sys.executable, "-c", code, "dump-profile", str(DIGITS / "model.onnx"), *map(str, options)]
    rng, progress = random.Random(11), [0]
    for kill in range(5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while kill and done(keeper) <= progress[-1] and process.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
        progress.append(done(keeper))
        assert not output.exists()
    assert progress == sorted(progress)
    assert 0 < progress[-1] < 240
    subprocess.run(command, check=True, capture_output=True)
    assert output.read_bytes() == (tmp_path / "undisturbed.yaml").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "killed.yaml", "undisturbed.yaml"]


# ------------------------------------------------------------------------------------------------- memory

MEMORY = """
import importlib.util, resource, sys
import numpy as np
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.samples import Sample

spec = importlib.util.spec_from_file_location("tests_of_checkpoints", sys.argv[1])
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
rng = np.random.default_rng(0)
shape = (8, 4, 16, 16)
samples = (Sample(str(i), {"x": rng.standard_normal(shape, np.float32)}) for i in range(int(sys.argv[2])))
calibrate(tests.conv_net(), samples, tests.ID, RunSettings(channels="off", threads=2))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system does not tell")
def test_memory_does_not_grow_with_the_number_of_samples() -> None:
    """Peak at 2000 samples within 3 % of that at 16."""
    peaks = []
    for number in (16, 2000):
        command = [sys.executable, "-c", MEMORY, __file__, str(number)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(int(result.stdout))
    assert peaks[1] <= 1.03 * peaks[0]


def test_samples_are_not_kept(tmp_path: Path) -> None:
    """Of the feeds that a generator made, no more are alive than run and wait."""
    import weakref

    alive: list[weakref.ref[np.ndarray[Any, Any]]] = []
    most = 0

    def feeds() -> Iterator[Sample]:
        nonlocal most
        for number in range(40):
            array = np.zeros((1, 4, 16, 16), np.float32)
            alive.append(weakref.ref(array))
            yield Sample(str(number), {"x": array})
            most = max(most, sum(ref() is not None for ref in alive))

    calibrate(conv_net(), feeds(), ID, RunSettings(channels="off", threads=2))
    assert most <= 5
