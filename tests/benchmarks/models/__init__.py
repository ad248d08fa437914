"""The models of the benchmarks, one file each, loaded only when asked for."""

from __future__ import annotations

import importlib

from record import RealModel

IN_FILES = {"ppocr-rec": "ppocr", "ppocr-cls": "ppocr", "ppocr6-rec": "ppocr", "magika": "magika_files"}
"""Model -> its module, where that has another name, or has more than one model."""
_OF_PACKAGES = """
    ppocr-rec ppocr-det ppocr-cls magika minilm silero orientation captcha-det waifu2x vit-focus ppocr6-rec
    basic-pitch swift-f0 nudenet g2p resnet50 digits
"""
_TRAINED_HERE = """
    langid syntax-graph forecast code-table keywords texture-faults captions char-decoder piece-decoder
    noise-mask vocoder pose length-regulator corners voices matcher backbone figure-mask counter maze-plan
    clusters denoise-step recommender hull-pointer marks surfaces
"""
REAL = tuple(f"{_OF_PACKAGES} {_TRAINED_HERE}".split())
"""Those with a task: trained, but for resnet50, which shows speed alone."""
SYNTHETIC = ("mobile-v3", "prelu-sr", "u-net", "gru-speech", "encoder")
"""Networks with random weights (synthetic.py), for kinds that no package ships: speed and SQNR only."""
FOR_DECODERS = ("builder-decoder",)
"""Those of stage `decoders` alone."""


def load(name: str) -> RealModel:
    """Return a model's record; its packages are imported now.

    Raises:
        SystemExit: there is no such model.
    """
    names = (*REAL, *FOR_DECODERS, *SYNTHETIC)
    if name not in names:
        raise SystemExit(f"no model {name}; models are {', '.join(names)}")
    file = "synthetic" if name in SYNTHETIC else name.replace("-", "_")
    module = importlib.import_module(f"models.{IN_FILES.get(name, file)}")
    model = module.MODELS[name] if hasattr(module, "MODELS") else module.MODEL
    assert isinstance(model, RealModel)
    return model
