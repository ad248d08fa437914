"""The reference implementations of tests/reference, for the scripts of this folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from reference.contrib_operators import CONTRIB
from reference.onnx_fixes import FIXED_OPERATORS
from reference.plan_interpreter import Tensor, run_plan

__all__ = ["CONTRIB", "FIXED_OPERATORS", "Tensor", "run_plan"]
