"""Weights and biases changed so that quantization loses less: equalization, bias correction, rounding.

Input: graph, profile and a plan. Output: equalization scales, biases and rounding offsets, which the plan
stores.
"""
