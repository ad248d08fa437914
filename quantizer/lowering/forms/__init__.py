"""One module for each form; each is a table of writers by kind and implementation.

Enters: float model and `QuantPlan`.
Leaves: quantized model.
"""
