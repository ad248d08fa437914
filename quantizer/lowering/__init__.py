"""Lowering: a plan written as a quantized ONNX model. Knows nothing of why.

Enters: float model and `QuantPlan`.
Leaves: quantized `ir.Model`.
Imports: equalization, rounding, plan, operators, model, numerics, profiles.instrumentation, profiles.base.
"""
