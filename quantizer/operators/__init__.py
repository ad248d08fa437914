"""What is known of each operator: the table, weight layouts, noise gains, functions of one variable.

Enters: a node and its graph.
Leaves: `Rule`, names, axes, functions.
Imports: model, numerics, profiles.records, profiles.base.
"""
