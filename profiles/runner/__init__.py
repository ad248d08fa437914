"""Calibration runs: threads, processes, clusters.

Enters: a prepared model and samples.
Leaves: `Profile`.
"""
