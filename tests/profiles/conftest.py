"""Profiles without what depends on the names or the batches of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from qprof_onnx.profiles.records.profile import Extremes, Profile, TensorProfile


def without_names(tensor: TensorProfile) -> TensorProfile:
    assert tensor.extremes is not None
    ends = (tensor.extremes.lowest, tensor.extremes.highest)
    return replace(tensor, extremes=Extremes(*(tuple(replace(e, name="") for e in end) for end in ends)))


@pytest.fixture(scope="session")
def unnamed() -> Callable[[Profile], Profile]:
    """Return a function that takes the names of samples out of a profile; digests stay."""

    def change(profile: Profile) -> Profile:
        inputs = {name: replace(i, tensor=without_names(i.tensor)) for name, i in profile.inputs.items()}
        tensors = {name: without_names(tensor) for name, tensor in profile.items()}
        return replace(profile, tensors=tensors, inputs=inputs)

    return change


@pytest.fixture(scope="session")
def by_element() -> Callable[[Profile], Profile]:
    """Return a function that leaves in a profile what follows from the elements, whatever their batches."""

    def change(profile: Profile) -> Profile:
        tensors = {name: replace(tensor, extremes=None) for name, tensor in profile.items()}
        return replace(profile, tensors=tensors, runs=0, inputs={})

    return change
