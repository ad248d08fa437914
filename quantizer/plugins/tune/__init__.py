"""Searches that run a model often: `tune`, `--check-speed`, `targets --measure`.

Enters: a model, its profile and samples; a target.
Leaves: a plan that meets a quality target; a table of costs.
"""
