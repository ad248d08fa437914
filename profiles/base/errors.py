"""The errors of qprof: one root, one child for each kind of thing that a user can repair.

Every message reads "where: what; what to do". Library code raises; only the command line prints and
exits, with the `exit_code` of the class.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class QprofError(Exception):
    """Root of every error that a user can repair. `exit_code` is what the command line exits with."""

    exit_code: int = 2


class ConfigError(QprofError):
    """An option, a configuration file or a name in it is wrong."""


class ModelError(QprofError):
    """The ONNX model cannot be read, is invalid, or cannot be run."""


class ProfileError(QprofError):
    """A profile cannot be read, or belongs to another model."""


class DataError(QprofError):
    """A sample does not fit the model, or calibration data is missing or unusable."""


class PlanError(QprofError):
    """A plan cannot be read, or breaks a rule that `verify_plan` holds."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the name of `names` closest to `name`, or "" when none is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""
