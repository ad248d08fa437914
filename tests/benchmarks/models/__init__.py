"""The models of the benchmarks, one file each, loaded only when asked for."""

from __future__ import annotations

import importlib

from record import RealModel

IN_FILES = {"ppocr-rec": "ppocr", "ppocr-cls": "ppocr", "ppocr6-rec": "ppocr", "magika": "magika_files"}
"""Model -> its module, where that has another name, or has more than one model."""
_IN_TABLES = """
    ppocr-rec ppocr-det ppocr-cls magika minilm silero orientation captcha-det waifu2x vit-focus ppocr6-rec
    basic-pitch swift-f0 nudenet g2p digits
"""
REAL = tuple(_IN_TABLES.split())


def load(name: str) -> RealModel:
    """Return a model's record; its packages are imported now."""
    if name not in REAL:
        raise SystemExit(f"no model {name}; models are {', '.join(REAL)}")
    module = importlib.import_module(f"models.{IN_FILES.get(name, name.replace('-', '_'))}")
    model = module.MODELS[name] if hasattr(module, "MODELS") else module.MODEL
    assert isinstance(model, RealModel)
    return model
