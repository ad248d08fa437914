"""Observers: they turn arrays into statistics, compiled or in numpy.

Enters: arrays of one tensor.
Leaves: `TensorProfile`.
Imports: records.
"""
