"""Records of what was measured: histogram, per-channel statistics, profile; their file, merge and drift.

Enters: counts, ranges, files.
Leaves: `Profile`.
"""
