"""Recordings: read with and without a library, cut into windows, laid out for the model."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.plugins.data import audio as recordings
from qprof_onnx.quantizer.plugins.data.audio import recording_of

from ....profiles.samples.opening import opened, read, refusal, spec, written
from ....profiles.samples.opening import saved_recording as saved

soundfile = pytest.importorskip("soundfile", reason="of the extra test-all")

RATE = 8000
WAVEFORM = spec("x", np.float32, (1, 4))


def recipe(folder: Path, more: str = "") -> Path:
    return written(folder, f"reader: audio; rate: {RATE}; {more}")


def test_a_recording_is_cut_into_the_windows_that_the_model_fixes(tmp_path: Path) -> None:
    source = saved(tmp_path, np.arange(10) * 1024)
    samples = read(source, [WAVEFORM], recipe(tmp_path))
    assert [sample.name for sample in samples] == ["a.wav[0]", "a.wav[1]"]
    np.testing.assert_array_equal(samples[1].arrays["x"], [[4 / 32, 5 / 32, 6 / 32, 7 / 32]])
    assert samples[0].arrays["x"].dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("n",), (4,)),
        (("N", "n"), (1, 4)),
        (("N", 1, "n"), (1, 1, 4)),
        (("N", 4, 1), (1, 4, 1)),
        ((1, 1, 4), (1, 1, 4)),
        (None, (1, 4)),
    ],
)
def test_the_signal_goes_where_the_shape_of_the_input_has_room(tmp_path: Path, shape, expected) -> None:
    source = saved(tmp_path, np.arange(4))
    (sample,) = read(source, [spec("x", np.float32, shape)], recipe(tmp_path, "window: 4"))
    assert sample.arrays["x"].shape == expected


def test_windows_may_overlap_and_the_last_one_be_filled_up(tmp_path: Path) -> None:
    source = saved(tmp_path, np.arange(7) * 2)
    samples = read(source, [WAVEFORM], recipe(tmp_path, "hop: 2; pad: true; scale: 32768"))
    values = [sample.arrays["x"].tolist()[0] for sample in samples]
    assert values == [[0, 2, 4, 6], [4, 6, 8, 10], [8, 10, 12, 0]]


def test_other_inputs_have_the_values_of_the_recipe(tmp_path: Path) -> None:
    inputs = [WAVEFORM, spec("state", np.float32, (2, "N", 3)), spec("sr", np.int64, ())]
    more = "constants: {state: {value: zeros, shape: [2, 1, 3]}, sr: 8000}"
    (sample,) = read(saved(tmp_path, np.arange(4)), inputs, recipe(tmp_path, more))
    assert sample.arrays["state"].shape == (2, 1, 3)
    assert sample.arrays["sr"].shape == ()
    assert sample.arrays["sr"] == 8000


def test_an_input_without_a_value_is_asked_for(tmp_path: Path) -> None:
    text = refusal(saved(tmp_path, np.arange(4)), [WAVEFORM, spec("sr", np.int64, ())], recipe(tmp_path))
    assert text.endswith(
        "input 'x' takes the signal, and others have no value; add to the recipe 'constants: {sr: 8000}'"
    )


def test_an_input_that_an_output_is_called_like_is_offered_as_a_state(tmp_path: Path) -> None:
    state = replace(spec("state", np.float32, (2, None, 128)), fed_by="stateN")
    inputs = [WAVEFORM, state, spec("sr", np.int64, ())]
    text = refusal(saved(tmp_path, np.arange(4)), inputs, recipe(tmp_path))
    lines = "add to the recipe 'state: {stateN: state}' and 'constants: {sr: 8000}'"
    assert text.endswith(f"{lines}, and 'hop: N' if windows overlap (512 for the 576 of Silero VAD)")
    assert refusal(tmp_path, inputs, recipe(tmp_path, "hop: 3")).endswith(lines)


def test_zeros_for_what_looks_like_a_state_are_refused_with_the_line_that_feeds_it_back(
    tmp_path: Path,
) -> None:
    state = replace(spec("state", np.float32, (2, None, 128)), fed_by="stateN")
    inputs = [WAVEFORM, state, spec("sr", np.int64, ())]
    zeros = recipe(tmp_path, "constants: {state: zeros, sr: 8000}")
    text = refusal(saved(tmp_path, np.arange(4)), inputs, zeros)
    assert text.endswith("leave it out there, and add the line 'state: {stateN: state}'")


def test_channels_are_averaged_or_the_first_is_taken(tmp_path: Path) -> None:
    source = saved(tmp_path, np.stack([np.full(4, 100), np.full(4, 300)], axis=1))
    (mean,) = read(source, [WAVEFORM], recipe(tmp_path, "scale: 32768"))
    (first,) = read(source, [WAVEFORM], recipe(tmp_path, "scale: 32768; channels: first"))
    assert mean.arrays["x"][0, 0] == 200
    assert first.arrays["x"][0, 0] == 100


def test_whole_recordings_are_samples_where_nothing_fixes_a_window(tmp_path: Path, caplog) -> None:
    saved(tmp_path, np.arange(5), "2.wav")
    saved(tmp_path, np.arange(3), "10.wav")
    with caplog.at_level(logging.WARNING):
        samples = opened(tmp_path, [spec("x", np.float32, ("N", "n"))], recipe(tmp_path))
        read = {sample.name: sample.arrays["x"].shape for sample in samples}
    assert samples.total == 2
    assert read == {"2.wav": (1, 5), "10.wav": (1, 3)}
    assert "whole recordings; override with window and hop in the recipe" in caplog.text


def test_another_rate_is_refused_unless_a_library_is_named(tmp_path: Path) -> None:
    source = saved(tmp_path, np.arange(8), rate=16000)
    text = refusal(source, [WAVEFORM], recipe(tmp_path))
    assert "a.wav: has 16000 samples per second, but the recipe sets 8000" in text
    assert "resample: soxr" in text


def test_soxr_resamples(tmp_path: Path) -> None:
    tone = 8000 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    (sample,) = read(
        saved(tmp_path, tone, rate=16000),
        [spec("x", np.float32, ("n",))],
        recipe(tmp_path, "resample: soxr; scale: 32768"),
    )
    wanted = 8000 * np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    middle = slice(1000, 7000)
    # The filter: half a per cent of the amplitude.
    np.testing.assert_allclose(sample.arrays["x"][middle], wanted[middle], atol=40)


def test_integers_are_rounded_and_need_a_scale(tmp_path: Path) -> None:
    source, inputs = saved(tmp_path, np.array([1, -2, 3, 4])), [spec("x", np.int16, (1, 4))]
    assert "set scale: 32768 for 16-bit values" in refusal(source, inputs, recipe(tmp_path))
    (sample,) = read(source, inputs, recipe(tmp_path, "scale: 32768"))
    assert sample.arrays["x"].tolist() == [[1, -2, 3, 4]]


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32"])
def test_the_standard_library_reads_what_soundfile_reads(subtype: str, monkeypatch) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    file = io.BytesIO()
    soundfile.write(file, values, RATE, subtype=subtype, format="WAV")
    plain, rate = recording_of("a", file.getvalue())
    monkeypatch.setattr(recordings, "_plain_wav", lambda content: None)
    np.testing.assert_array_equal(plain, recording_of("a", file.getvalue())[0])
    assert rate == RATE


def test_other_formats_need_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.full(50, 0.5), RATE, format="FLAC")
    signal, _ = recording_of("a.flac", file.getvalue())
    assert signal[0] == pytest.approx(0.5, abs=1e-4)
    monkeypatch.setattr(recordings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"a.flac: .*pip install 'soundfile"):
        recording_of("a.flac", file.getvalue())


@pytest.mark.parametrize("content", [b"", b"RIFF", b"no sound at all"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.wav").write_bytes(content)
    assert "b.wav: is broken or no recording" in refusal(tmp_path / "b.wav", [WAVEFORM], recipe(tmp_path))


def test_a_file_that_is_cut_off_is_broken_or_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(100))
    path.write_bytes(path.read_bytes()[:-20])
    assert len(read(path, [WAVEFORM], recipe(tmp_path))) == 22


def test_a_recording_shorter_than_a_window_is_refused(tmp_path: Path) -> None:
    text = refusal(saved(tmp_path, np.arange(3)), [WAVEFORM], recipe(tmp_path))
    assert "has 3 samples at 8000 Hz, fewer than a window of 4" in text


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("window: 5", "window: is 5 samples, and the model fixes 4"),
        ("hop: 0", "hop: 0 is not allowed; give N from 1"),
        ("input: y", "input: 'y' is not an input of the model"),
        ("resample: best", "resample: 'best' is not allowed; give refuse or soxr"),
        (
            "constants: {x: zeros}",
            "every input has a value; remove the input for the signal from constants",
        ),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, more: str, says: str) -> None:
    assert says in refusal(saved(tmp_path, np.arange(4)), [WAVEFORM], recipe(tmp_path, more))


def test_a_recipe_must_say_the_rate(tmp_path: Path) -> None:
    text = refusal(saved(tmp_path, np.arange(4)), [WAVEFORM])
    assert "contains recordings, but the sample rate of the model is" in text


def test_features_that_are_no_signal_are_left_to_python(tmp_path: Path) -> None:
    mel = spec("x", np.float32, ("N", 80, "frames"))
    assert "--data file.py:function" in refusal(saved(tmp_path, np.arange(4)), [mel], recipe(tmp_path))
