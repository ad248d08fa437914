"""ONNX models: files, index of a graph, edits, fingerprint.

Enters: an ONNX file.
Leaves: `ir.Model`, `Graph`, `ModelId`.
"""
