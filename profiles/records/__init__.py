"""Records of measurements: histogram, per-channel statistics, profile; their file and merge.

Enters: counts, ranges, files.
Leaves: `Profile`.
"""
