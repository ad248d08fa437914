"""Metrics of tasks: boxes, masks, texts, retrieval, pictures, numbers: siblings that `KINDS` names.

Enters: outputs of both models, and the truth.
Leaves: opened metrics (`evaluation/metrics/metric.py`).
"""
