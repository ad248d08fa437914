"""Why a tensor has its parameters, and a node its kind: what `show PLAN NAME` prints.

Enters: a plan, a name of it; the profile and the model.
Leaves: an explanation, and its text.
"""
