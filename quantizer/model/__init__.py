"""ONNX models: files, graph index, edits, fingerprint.

Enters: an ONNX file.
Leaves: `ir.Model`, `Graph`, `ModelId`.
Imports: profiles.records, profiles.base.
"""
