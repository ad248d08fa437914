"""The plan: every decision as a value, its file, its rules. The only thing that planning and lowering share.

Enters: decisions.
Leaves: `QuantPlan`, verified; a YAML file.
"""
