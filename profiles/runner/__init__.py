"""Calibration runs: threads, processes, clusters, checkpoints.

Enters: a prepared model and samples.
Leaves: `Profile`.
Imports: instrumentation, observers, runtime, samples, readers, records, checks, base.
"""
