"""What a model will cost on a target, from a table of measured kernels, without running it. Pure.

Enters: a model, its plan and profile, the table of a target.
Leaves: predicted microseconds of each node in float and in int8, and of each conversion.
Imports: plan, targets, operators, model, profiles.records, profiles.base.
"""
