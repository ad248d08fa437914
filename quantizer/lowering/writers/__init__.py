"""How one node, one tensor, one graph is written.

Enters: a node and its entry of the plan.
Leaves: nodes.
Imports: plan, operators, numerics, model.
"""
