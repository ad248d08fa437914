"""Other runtimes than onnxruntime that models can be compared in.

Enters: a model file. Leaves: a session as onnxruntime describes one (`evaluation/runtimes.py`).
"""
