"""Running models in onnxruntime: sessions, latency, node times, a smoke run.

Enters: model files and samples.
Leaves: outputs and times.
Imports: profiles.runtime, profiles.base.
"""
