"""The measured times of a runtime's kernels, and the times between the measured points.

Enters: the file of a table.
Leaves: microseconds of a kernel at sizes.
Imports: profiles.base.
"""
