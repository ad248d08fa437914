"""The siblings: files and folders that the core does without, and knows by entries of its tables."""

from __future__ import annotations

from qprof_onnx.cli.main import SIBLINGS, module_name

COMMANDS = tuple(f"cli/commands/{module_name(name)}.py" for name in SIBLINGS)
ROOMS = (
    "quantizer/report",
    "quantizer/exchange",
    "quantizer/microbenchmarks",
    "quantizer/metrics",
    "profiles/readers",
)
MODULES = (
    "quantizer/api/tune.py",
    "quantizer/search/tune.py",
    "quantizer/search/plan_search.py",
    "quantizer/search/trial.py",
    "quantizer/api/sensitivity.py",
    "quantizer/search/sensitivity.py",
    "profiles/runner/cluster.py",
)
"""Siblings that are modules of a room of the core; a module imports those below it in this list."""
