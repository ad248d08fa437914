"""The models of the benchmarks: real ones, one file each, loaded only when asked for; synthetic and aside
ones.
"""

from __future__ import annotations

import importlib

from record import RealModel

IN_FILES = {"ppocr-rec": "ppocr", "ppocr-cls": "ppocr", "ppocr6-rec": "ppocr", "magika": "magika_files"}
"""Model -> its module, where that has another name, or has more than one model."""
_OF_PACKAGES = """
    ppocr-rec ppocr-det ppocr-cls magika minilm silero orientation captcha-det waifu2x vit-focus ppocr6-rec
    basic-pitch swift-f0 nudenet
"""
_KEPT_ASIDE = "langid syntax-graph forecast code-table g2p keywords texture-faults captions"
_OTHERS = """
    resnet50 digits char-decoder piece-decoder noise-mask vocoder pose length-regulator corners voices matcher
    backbone figure-mask
"""
_KEPT_ASIDE_OF_VERSIONS = "counter maze-plan clusters denoise-step recommender hull-pointer marks surfaces"
_ASIDE = """
    ppocr5-rec ppocr5-det ppocr6-rec-tiny ppocr6-det-tiny ppocr6-det-small seal-det en-rec ppocr2-rec
    ppocr3-det layout dnsmos dnsmos-sig aecmos aecmos-leaky plcmos tashkeel nakdimon
"""
REAL = tuple(f"{_OF_PACKAGES} {_KEPT_ASIDE} {_OTHERS} {_KEPT_ASIDE_OF_VERSIONS}".split())
# Those that nobody quantized while qprof was made: their figures are published as they came the first time,
# those of the first ones in README.md, of the others in VERSIONS.md.
KEPT_ASIDE_OF_VERSIONS = tuple(_KEPT_ASIDE_OF_VERSIONS.split())
KEPT_ASIDE = (*_KEPT_ASIDE.split(), *KEPT_ASIDE_OF_VERSIONS)
# Those with trained weights and a split for tuning that may be looked at.
TRAINED = tuple(name for name in REAL if name not in {"resnet50", "digits", *KEPT_ASIDE})
# Networks with random weights (synthetic.py), for kinds that no package ships: speed and SQNR only.
SYNTHETIC = ("mobile-v3", "prelu-sr", "u-net", "gru-speech", "encoder")
FOR_DECODERS = ("builder-decoder",)
"""Those of stage `decoders` alone."""
ASIDE = tuple(_ASIDE.split())
"""Those of models/aside.py."""


def load(name: str) -> RealModel:
    """Return a model's record; its packages are imported now.

    Raises:
        SystemExit: there is no such model.
    """
    names = (*REAL, *FOR_DECODERS, *SYNTHETIC, *ASIDE)
    if name not in names:
        raise SystemExit(f"no model {name}; models are {', '.join(names)}")
    file = "synthetic" if name in SYNTHETIC else "aside" if name in ASIDE else name.replace("-", "_")
    module = importlib.import_module(f"models.{IN_FILES.get(name, file)}")
    model = module.MODELS[name] if hasattr(module, "MODELS") else module.MODEL
    assert isinstance(model, RealModel)
    return model
