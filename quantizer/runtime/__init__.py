"""onnxruntime as a judge: sessions, latency, node times, a smoke run.

Enters: model files and feeds.
Leaves: outputs and times.
Imports: profiles.runtime, profiles.base.
"""
