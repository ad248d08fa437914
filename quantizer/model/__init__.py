"""ONNX models: files, index of a graph, edits, fingerprint.

Enters: an ONNX file.
Leaves: `ir.Model`, `Graph`, `ModelId`.
Imports: profiles.instrumentation, profiles.samples, profiles.records, profiles.base.
"""
