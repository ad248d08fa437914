"""A report of a quantized model: what is estimated of its plan, what was measured, and what to do next.

Enters: an `Analysis` of model, plan and profile; results of commands.
Leaves: a `Report`, which `html` and `writers` make files of.
"""
