"""Progress on disk: a run that is killed goes on where it was, to the same bytes."""

from __future__ import annotations

import hashlib
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
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.checkpoint import RunProgress, load_progress, save_progress
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.runtime.session import run_sample
from qprof_onnx.profiles.samples.values import Sample, Samples
from qprof_onnx.quantizer.api.profiling import profile_model

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


def samples_of(items: list[Sample], stop: int | None = None) -> Samples:
    """Return samples that end with an error before number `stop`."""

    def iterate(part: slice) -> Iterator[Sample]:
        for number in range(len(items))[part]:
            if number == stop:
                raise KilledError
            yield items[number]

    return Samples("images", len(items), iterate)


def run(
    path: Path,
    stop: int | None = None,
    progress: Any = None,
    samples: Samples | None = None,
    model_id: ModelId = ID,
    **settings: Any,
) -> Profile:
    chosen = RunSettings(**{"channels": "off", "checkpoint": path, "every": 0.0, **settings})
    return calibrate(conv_net(), samples or samples_of(images(), stop), model_id, chosen, progress)


def counted_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that will hold the names of the samples that the model is run on."""
    names: list[str] = []

    def noted(session: Any, fetched: Any, sample: Sample) -> Any:
        names.append(sample.name)
        return run_sample(session, fetched, sample)

    monkeypatch.setattr("qprof_onnx.profiles.runner.sample_pass.run_sample", noted)
    return names


def progress_of(path: Path) -> dict[str, Any]:
    """Return the second line of a checkpoint: identity of the run, and what is done."""
    entries: dict[str, Any] = json.loads(path.read_text().splitlines()[1])
    return entries


@pytest.mark.parametrize("stop", [1, 3, 5])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, threads: int
) -> None:
    with pytest.raises(KilledError):
        run(tmp_path / "c", stop, threads=threads)
    expected = dumps(calibrate(conv_net(), images(), ID))
    runs = counted_runs(monkeypatch)
    assert dumps(run(tmp_path / "c", threads=threads)) == expected
    assert sorted(runs) == [sample.name for sample in images()[stop:]]


def test_a_run_with_channels_goes_on_where_it_was(tmp_path: Path) -> None:
    axes = {"x": 1, "p": 1}
    with pytest.raises(KilledError):
        run(tmp_path / "c", 4, channels=axes)
    found = run(tmp_path / "c", channels=axes)
    assert dumps(found) == dumps(calibrate(conv_net(), images(), ID, RunSettings(channels=axes)))
    assert found["p"].channels is not None


def test_a_finished_run_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, runs = run(tmp_path / "c"), counted_runs(monkeypatch)
    assert dumps(run(tmp_path / "c")) == dumps(first)
    assert runs == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"by_row": True}, "belongs to a run with by_row false, not true"),
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
    run(tmp_path / "c")
    with pytest.raises(ProfileError, match="belongs to a run with model"):
        run(tmp_path / "c", model_id=ModelId("other", "weights", 13))


@pytest.mark.parametrize("content", ["", "{}\n", "not json\n", "qprof-profile/2\n"])
def test_another_file_is_refused_as_a_checkpoint(tmp_path: Path, content: str) -> None:
    (tmp_path / "c").write_text(content)
    with pytest.raises(ProfileError, match="c: is not a checkpoint; remove the file"):
        run(tmp_path / "c")


@pytest.mark.parametrize("content", ['{"format": "qprof-checkpoint/2"}\n', "qprof-checkpoint/9 abc\n"])
def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "c").write_text(content)
    with pytest.raises(ProfileError, match="c: is a checkpoint of another version of qprof; remove the file"):
        run(tmp_path / "c")


def test_progress_is_written_when_it_is_time_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    now = [0.0]

    def noted(place: Path, which: dict[str, Any], progressed: RunProgress) -> None:
        written.append(progressed.samples)
        save_progress(place, which, progressed)

    def tick(done: int, total: int | None) -> None:
        now[0] += 10.0

    monkeypatch.setattr("qprof_onnx.profiles.runner.calibrate.save_progress", noted)
    monkeypatch.setattr("qprof_onnx.profiles.runner.calibrate.time.monotonic", lambda: now[0])
    run(tmp_path / "c", progress=tick, samples=samples_of(images(10)), threads=1, every=25.0)
    assert written == [4, 8]  # 40 s after the start, and 40 s later
    assert load_progress(tmp_path / "d", {"samples": 6}) == RunProgress()


def test_saving_and_loading_progress_give_the_same(tmp_path: Path) -> None:
    place, which = tmp_path / "c", {"data": "images", "samples": 6, "tensors": ["a"]}
    profile = calibrate(conv_net(), images(1), ID)
    progressed = RunProgress(1, profile, bytes.fromhex(profile.data.digest))
    save_progress(place, which, progressed)
    assert load_progress(place, which) == progressed


# ------------------------------------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What is in the checkpoint of a run that was stopped after 4 of 6 samples."""
    place = tmp_path_factory.mktemp("stopped") / "c"
    with pytest.raises(KilledError):
        run(place, 4, threads=1)
    assert progress_of(place)["done"] == 4
    return place.read_bytes()


@pytest.fixture
def stopped(tmp_path: Path, content: bytes) -> Path:
    """The checkpoint of a run that was stopped after 4 of 6 samples."""
    (tmp_path / "c").write_bytes(content)
    return tmp_path / "c"


def test_no_damaged_byte_of_a_checkpoint_is_taken(stopped: Path) -> None:
    content, rng = stopped.read_bytes(), random.Random(4)
    for _ in range(60):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(7)
        stopped.write_bytes(damaged)
        with pytest.raises(ProfileError, match=r"c: .*"):
            run(stopped)


# ------------------------------------------------------------------------------------------- NaN and Inf

LOG = """<ir_version: 8, opset_import: ["": 13]>
    log (float[1, 4] x) => (float[1, 4] y) {
        l = Log (x)
        s = Sqrt (x)
        y = Add (l, s)
    }"""


@pytest.mark.parametrize("by_row", [False, True])
def test_a_resumed_run_remembers_the_same_first_nan(tmp_path: Path, by_row: bool) -> None:
    """Whether it was counted before the end or after it; samples in any order."""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(LOG)))
    rows = 3 if by_row else 1
    items = [Sample(f"{name}.npz", {"x": np.ones((rows, 4), np.float32)}) for name in (4, 10, 2, 0, 9)]
    for number, value in ((1, -1.0), (2, 0.0), (4, np.nan)):
        items[number].arrays["x"][-1, 1] = value
    settings: dict[str, Any] = {"channels": "off", "by_row": by_row}
    expected = calibrate(model, samples_of(items), ID, RunSettings(**settings))
    assert expected.non_finite.first is not None
    assert expected.non_finite.first.sample == ("2.npz[2]" if by_row else "2.npz")
    settings |= {"checkpoint": tmp_path / "c", "every": 0.0}
    for stop in (2, 4):
        with pytest.raises(KilledError):
            calibrate(model, samples_of(items), ID, RunSettings(**settings), stop_after(stop))
    resumed = calibrate(model, samples_of(items), ID, RunSettings(**settings))
    assert (dumps(resumed), resumed.non_finite) == (dumps(expected), expected.non_finite)
    assert tuple(map(str, resumed.findings)) == tuple(map(str, expected.findings))


# ------------------------------------------------------------------------------------------------- other data


def folder_of(place: Path, first: int, number: int = 6) -> Path:
    """Make a folder of samples of the digits model, all different; `first` is the seed."""
    place.mkdir(parents=True)
    rng = np.random.default_rng(first)
    for name in range(number):
        np.savez(place / f"{name}.npz", image=rng.random((2, 1, 8, 8), np.float32))
    return place


def stop_after(number: int) -> Any:
    """Return a progress callback that ends a run after so many samples."""

    def report(done: int, total: int | None) -> None:
        if done > number:
            raise KilledError

    return report


def profile_digits(data: Path | str, place: Path, stop: int | None = None, **settings: Any) -> Profile:
    progress = None if stop is None else stop_after(stop)
    chosen = RunSettings(checkpoint=place, every=0.0, threads=1, **settings)
    return profile_model(
        DIGITS / "model.onnx", data, None, chosen, stage=None if progress is None else lambda _: progress
    )


def test_a_sample_that_changed_since_it_was_counted_is_named(tmp_path: Path) -> None:
    data, place = folder_of(tmp_path / "data", 1), tmp_path / "c"
    with pytest.raises(KilledError):
        profile_digits(data, place, stop=4)
    (data / "0.npz").write_bytes((data / "5.npz").read_bytes())
    with pytest.raises(
        ProfileError, match=r"c: sample 0\.npz: is not the one that was counted in its place .*"
    ) as e:
        profile_digits(data, place)
    assert "restore the data that the run began with, or remove the file" in str(e.value)


def test_another_folder_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first, name in enumerate(("here", "there")):
        folder_of(tmp_path / name / "data", first)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(KilledError):
        profile_digits("data", tmp_path / "c", stop=4)
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(ProfileError, match=r'belongs to a run with data ".*here/data", not ".*there/data"'):
        profile_digits("data", tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    assert profile_digits("here/data", tmp_path / "c").data.samples == 12  # the same folder by another path


def test_another_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ten_digits.py").write_text(
        "import numpy as np\n"
        "def feeds():\n"
        "    for n in range(10):\n"
        "        yield {'image': np.full((1, 1, 8, 8), n, np.float32)}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KilledError):
        profile_digits("ten_digits:feeds", tmp_path / "c", stop=8, limit=10)
    with pytest.raises(ProfileError, match="belongs to a run with limit 10, not 3; remove the file"):
        profile_digits("ten_digits:feeds", tmp_path / "c", limit=3)
    assert profile_digits("ten_digits:feeds", tmp_path / "c", limit=10).data.samples == 10


def test_fewer_samples_than_were_counted_are_refused(stopped: Path) -> None:
    with pytest.raises(ProfileError, match="c: the samples end after 3, and 4 were counted before the run"):
        run(stopped, samples=Samples("images", 6, lambda part: iter(images()[:3][part])))


# ------------------------------------------------------------------------------------------------- SIGKILL


def done(path: Path) -> int:
    """Return how many feeds a checkpoint holds; 0 when there is none."""
    try:
        return int(progress_of(path)["done"])
    except FileNotFoundError:
        return 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_at_random_moments_the_same_command_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Three kills: the first while the program starts, the others up to 0.1 s after it has made progress."""
    data, files = tmp_path / "data", sorted((DIGITS / "calibration").glob("*.npz"))
    data.mkdir()
    for number in range(240):
        os.link(files[number % len(files)], data / f"{number}.npz")
    profile_model(DIGITS / "model.onnx", data, tmp_path / "undisturbed.yaml")
    keeper, output = tmp_path / "progress.qprof", tmp_path / "killed.yaml"
    options = ["--data", data, "-o", output, "--checkpoint", keeper, "--every", "0"]
    code = "from qprof_onnx.cli.main import main; main(prog_name='qprof')"
    command = [sys.executable, "-c", code, "dump-profile", str(DIGITS / "model.onnx"), *map(str, options)]
    rng, progress = random.Random(11), [0]
    for kill in range(3):
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
    samples = [(tmp_path / f"{name}.samples.npz").read_bytes() for name in ("killed", "undisturbed")]
    assert samples[0] == samples[1]
    written = [f"{name}.{end}" for name in ("killed", "undisturbed") for end in ("samples.npz", "yaml")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", *written]


# ------------------------------------------------------------------------------------------------- memory

MEMORY = """
import importlib.util, resource, sys
import numpy as np
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.runtime.session import run_sample
from qprof_onnx.profiles.samples.values import Sample

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


def test_deep_json_in_a_checkpoint_is_refused(stopped: Path) -> None:
    deep = "[" * 100_000 + "\n"
    digest = hashlib.blake2b(deep.encode(), digest_size=32).hexdigest()
    stopped.write_text(f"qprof-checkpoint/5 {digest}\n{deep}")
    with pytest.raises(ProfileError, match=r"c: contradicts itself"):
        run(stopped)
