"""Formats of numbers beside 8-bit integers and float32: a plug-in that `quantizer/plan/formats.py` names.

Enters: the planner's questions. Leaves: parts of a plan, and of the model that is written.
"""
