"""Observers: they turn arrays into statistics, with compiled kernels or in numpy.

Enters: arrays of one tensor.
Leaves: `TensorProfile`.
"""
