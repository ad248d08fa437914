"""The output of `show`: a profile or a plan, and the reasons for a tensor or a node.

Enters: a plan, a name of it; the profile and the model.
Leaves: an explanation, and its text.
"""
