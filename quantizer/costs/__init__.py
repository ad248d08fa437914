"""The cost of a model on a target, by a table of measured kernels, and the nodes faster in float. Pure.

Enters: a model, its plan and profile, the table of a target.
Leaves: predicted microseconds of each node in float and in int8, and of each conversion; the nodes that are
faster in float.
"""
