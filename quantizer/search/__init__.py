"""The search for better plans: candidates that are planned, run, scored and timed.

Enters: a model, its profile, samples, a target of quality.
Leaves: the plan that meets it; how sensitive outputs are to each node; a verdict.
"""
