"""What nodes and conversions cost, and which nodes are faster in float by that. Pure.

Enters: a plan, and microseconds: measured, or predicted from the table of a target's kernels.
Leaves: predicted microseconds of each node and conversion; the float regions that gain.
Imports: plan, operators, model, numerics, profiles.records, profiles.base.
"""
