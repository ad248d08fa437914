"""What nodes and conversions cost, and which nodes are faster in float by that. Pure.

Enters: a plan, and microseconds that were measured or are predicted.
Leaves: the float regions that gain.
Imports: plan, model, profiles.records.
"""
