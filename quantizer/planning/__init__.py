"""Planning: from graph, profile and recipe to a plan. Knows nothing of how it is written.

Enters: `PreparedModel`, `Profile`, `Recipe`.
Leaves: `QuantPlan` and the model that it is for.
"""
