"""Microbenchmarks: the times of a target's kernels on this machine, as a table. A sibling of the core.

Enters: a target.
Leaves: its table of costs.
"""
