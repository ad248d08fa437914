"""ONNX models: files, index of a graph, edits, fingerprint.

Enters: an ONNX file.
Leaves: `ir.Model`, `Graph`, `ModelId`.
Imports: profiles.instrumentation, profiles.runtime, profiles.samples, profiles.readers, profiles.records,
profiles.base.
"""
