"""Type aliases of arrays, and of a function of one variable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
UnaryFunction = Callable[[Floats], Floats]
"""A function of one variable, element by element in float64."""
