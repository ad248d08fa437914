"""Lowering: a plan written as a quantized ONNX model. Knows nothing of why.

Enters: float model and `QuantPlan`.
Leaves: quantized `ir.Model`.
"""
