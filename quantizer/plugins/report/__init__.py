"""A report of a quantized model: estimates, measurements, and the next step.

Enters: an `Analysis` of model, plan and profile; results of commands.
Leaves: a `Report`, which `html` and `writers` make files of.
"""
