"""Expected quantization noise at the outputs, without data.

Enters: graph, profile, plan.
Leaves: where noise enters, and what it comes to at the outputs.
"""
