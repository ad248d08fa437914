"""Metrics, each opened with its truth."""
