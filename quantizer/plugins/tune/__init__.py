"""Searches that run a model many times: `tune`, `sensitivity`, `--check-speed`, `measure-target`.

Enters: a model, its profile and samples; a target.
Leaves: a plan that meets a quality target; nodes ranked by their noise; a table of costs.
"""
