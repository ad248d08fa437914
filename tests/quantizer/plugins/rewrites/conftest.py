"""Fixtures of the rewrites' tests: a function that lowers a graph."""

from ...lowering.conftest import lowered

__all__ = ["lowered"]
