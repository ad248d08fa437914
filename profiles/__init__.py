"""What was measured: calibration data, profiling runs, profiles and their files.

The public names are loaded when they are first used, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import ConfigError, DataError, ModelError, PlanError, ProfileError, QprofError
    from .histogram import EqualBins, Histogram
    from .instrument import instrument, observed, profile_from_outputs
    from .profile import DataId, ModelId, Profile, TensorProfile
    from .runner import calibrate
    from .samples import InputSpec, Sample, Samples, input_specs, open_samples
    from .store import load_profile, save_profile

_MODULES = {
    "errors": ("ConfigError", "DataError", "ModelError", "PlanError", "ProfileError", "QprofError"),
    "histogram": ("EqualBins", "Histogram"),
    "instrument": ("instrument", "observed", "profile_from_outputs"),
    "profile": ("DataId", "ModelId", "Profile", "TensorProfile"),
    "runner": ("calibrate",),
    "samples": ("InputSpec", "Sample", "Samples", "input_specs", "open_samples"),
    "store": ("load_profile", "save_profile"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ConfigError",
    "DataError",
    "DataId",
    "EqualBins",
    "Histogram",
    "InputSpec",
    "ModelError",
    "ModelId",
    "PlanError",
    "Profile",
    "ProfileError",
    "QprofError",
    "Sample",
    "Samples",
    "TensorProfile",
    "calibrate",
    "input_specs",
    "instrument",
    "load_profile",
    "observed",
    "open_samples",
    "profile_from_outputs",
    "save_profile",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
