"""Profiles without what depends on the batches of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from qprof_onnx.profiles.records.profile import Profile


@pytest.fixture(scope="session")
def by_element() -> Callable[[Profile], Profile]:
    """Return a function that leaves in a profile what follows from the elements, whatever their batches."""
    return lambda profile: replace(profile, runs=0, inputs={})
