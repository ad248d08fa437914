"""Weights and biases changed so that quantization loses less: equalization, bias correction, rounding.

Enters: graph, profile and a plan of the model as it is.
Leaves: equalization scales, biases and rounding offsets, which the plan keeps.
"""
