"""What is known of each operator: the operator table, weight layouts, noise gains, unary functions.

Enters: a node and its graph.
Leaves: `Rule`, names, axes, functions.
"""
