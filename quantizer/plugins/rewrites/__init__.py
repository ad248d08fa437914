"""Nodes written as other operators that compute the same: a sibling of the core, which `rewrites` names.

Enters: nodes that a plan has in one of these ways.
Leaves: the nodes in their place.
"""
