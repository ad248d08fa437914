"""onnxruntime's calibration table as text, calibration.cache: a line "NAME NUMBER" for each tensor.

Its TensorRT execution provider, for which the table is made, takes the number for the largest magnitude.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ProfileError
from ....profiles.records.profile import Profile


def written_limits(profile: Profile) -> dict[str, str]:
    """Return the largest magnitudes of tensors that are not always 0, in onnxruntime's digits, by name."""
    largest = {name: max(abs(tensor.minimum), abs(tensor.maximum)) for name, tensor in profile.items()}
    limits = {name: float(np.float32(limit)) for name, limit in largest.items()}
    return {name: str(limits[name]) for name in sorted(limits) if limits[name] > 0.0}


def write(profile: Profile, model: ir.Model) -> str:
    """Return a table of the tensors' largest magnitudes; raise ProfileError if a name has an end of line."""
    for name in profile:
        if len(name.splitlines()) > 1:
            raise ProfileError(f"tensor '{name}': its name holds an end of line; rename the tensor")
    return "".join(f"{name} {limit}\n" for name, limit in written_limits(profile).items())
