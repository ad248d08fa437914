"""Records of measurements: histogram, per-channel statistics, profile; their file, merge and drift.

Enters: counts, ranges, files.
Leaves: `Profile`.
"""
