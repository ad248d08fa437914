"""A profile or a plan, and the reasons of a tensor or a node: what `show` prints.

Enters: a plan, a name of it; the profile and the model.
Leaves: an explanation, and its text.
"""
