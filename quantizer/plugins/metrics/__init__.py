"""Metrics of tasks: boxes, masks, texts, retrieval, pictures, numbers; `KINDS` names them.

Enters: outputs of both models, and the truth.
Leaves: opened metrics (`evaluation/metrics/metric.py`).
"""
