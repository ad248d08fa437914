"""Roundings that are kept on disk: a run that is killed and resumed gives what an uninterrupted one gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.adjustments import second_moments as gathering
from qprof_onnx.quantizer.adjustments.checkpoint import RoundingCheckpoint
from qprof_onnx.quantizer.plan.store import dumps
from qprof_onnx.quantizer.planning.plan_model import (
    PlannedModel,
    model_facts,
    plan_from,
    rounded_with_samples,
)
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import network
from .test_gptq import PLAIN, TWO, profiled, samples

RUN = {"model": "m", "samples": "s"}


class Killed(BaseException):
    """As a signal would."""


class Counted(list[Sample]):
    """Samples that count how often they are run, and may be cut off by a kill."""

    def __init__(self, count: int, last: int | None = None) -> None:
        super().__init__(samples(count))
        self.runs, self.last = 0, last

    def __iter__(self) -> Iterator[Sample]:
        for sample in super().__iter__():
            self.runs += 1
            if self.runs == self.last:
                raise Killed
            yield sample


def planned() -> PlannedModel:
    net = profiled(network(*TWO), samples())
    return plan_from(model_facts(net.prepared, net.profile, load_recipe(None, PLAIN)))


def test_a_resumed_run_gives_the_bytes_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MEMORY", 1)  # one weight after the other
    made, file = planned(), tmp_path / "roundings"
    whole = Counted(6)
    expected = dumps(rounded_with_samples(made, whole).plan)
    with pytest.raises(Killed):  # 6 are digested, 6 counted, 6 run for the first weight, and 2 for the second
        rounded_with_samples(made, Counted(6, last=21), checkpoint=file)
    resumed = Counted(6)
    assert dumps(rounded_with_samples(made, resumed, checkpoint=file).plan) == expected
    # Digested before it is resumed; counted, and run for each of the two slices.
    assert (whole.runs, resumed.runs) == (18, 24)
    finished = Counted(6)
    assert dumps(rounded_with_samples(made, finished, checkpoint=file).plan) == expected
    assert finished.runs == 6  # digested


def test_a_weight_with_other_parameters_is_rounded_again(tmp_path: Path) -> None:
    net = profiled(network(*TWO), samples())
    file = tmp_path / "roundings"
    for settings in ({}, {"granularity": "per-tensor"}):
        made = plan_from(model_facts(net.prepared, net.profile, load_recipe(None, {**PLAIN, **settings})))
        kept = rounded_with_samples(made, samples(), checkpoint=file)
        assert kept.plan == rounded_with_samples(made, samples()).plan


def test_a_checkpoint_of_other_samples_is_refused(tmp_path: Path) -> None:
    made, file = planned(), tmp_path / "roundings"
    rounded_with_samples(made, samples(4), checkpoint=file)
    with pytest.raises(ConfigError, match="belongs to a run with other samples, so it cannot be resum"):
        rounded_with_samples(made, samples(5), checkpoint=file)


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_record_that_was_cut_off_is_dropped(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "roundings"
    kept = RoundingCheckpoint(file, RUN)
    offsets = [np.random.default_rng(i).integers(-1, 2, 100, np.int8).tobytes() for i in range(2)]
    for number, one in enumerate(offsets):
        kept.add(bytes([number] * 32), one)
    file.write_bytes(file.read_bytes()[:-cut])
    again = RoundingCheckpoint(file, RUN)
    assert again.get(bytes(32)) == offsets[0]
    assert again.get(bytes([1] * 32)) is None
    again.add(bytes([1] * 32), offsets[1])
    assert RoundingCheckpoint(file, RUN).get(bytes([1] * 32)) == offsets[1]


def test_a_record_that_is_damaged_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "roundings"
    RoundingCheckpoint(file, RUN).add(bytes(32), bytes(100))
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert RoundingCheckpoint(file, RUN).get(bytes(32)) is None


@pytest.mark.parametrize("content", ["", "a model", 'qprof-roundings/1 ["run"]\n', "qprof-roundings/1 {\n"])
def test_another_file_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"notes\.txt: is no checkpoint of roundings .*; remove the file"):
        RoundingCheckpoint(file, RUN)
    assert file.read_text() == content
