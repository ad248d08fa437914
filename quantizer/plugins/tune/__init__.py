"""Searches that run a model often: `tune`, `compare-layers --rank`, `--check-speed`, `targets --measure`.

Enters: a model, its profile and samples; a target.
Leaves: a plan that meets a quality target; nodes ranked by their noise; a table of costs.
"""
