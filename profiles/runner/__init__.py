"""Calibration runs: threads, processes, clusters, checkpoints.

Enters: a prepared model and samples.
Leaves: `Profile`.
"""
