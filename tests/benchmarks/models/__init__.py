"""The real models of the benchmark, one file each; a model is loaded only when it is asked for."""

from __future__ import annotations

import importlib

from record import RealModel

FILES = {
    "ppocr-rec": "ppocr_rec",
    "ppocr-det": "ppocr_det",
    "ppocr-cls": "ppocr_cls",
    "magika": "magika_files",
    "minilm": "minilm",
    "silero": "silero",
    "orientation": "orientation",
    "captcha-det": "captcha_det",
    "waifu2x": "waifu2x",
    "vit-focus": "vit_focus",
    "ppocr6-rec": "ppocr6_rec",
    "basic-pitch": "basic_pitch",
    "swift-f0": "swift_f0",
    "nudenet": "nudenet",
    "langid": "langid",
    "syntax-graph": "syntax_graph",
    "forecast": "forecast",
    "code-table": "code_table",
    "g2p": "g2p",
    "keywords": "keywords",
    "texture-faults": "texture_faults",
    "captions": "captions",
    "resnet50": "resnet50",
    "digits": "digits",
    "char-decoder": "char_decoder",
    "noise-mask": "noise_mask",
    "vocoder": "vocoder",
    "pose": "pose",
    "length-regulator": "length_regulator",
}
# Those that nobody quantized while qprof was made: their figures are published as they came the first time.
KEPT_ASIDE = (
    "langid",
    "syntax-graph",
    "forecast",
    "code-table",
    "g2p",
    "keywords",
    "texture-faults",
    "captions",
)
# Those with trained weights and a split for tuning that may be looked at.
TRAINED = tuple(name for name in FILES if name not in {"resnet50", "digits", *KEPT_ASIDE})


def load(name: str) -> RealModel:
    """Return a model's record; its packages are imported now."""
    model = importlib.import_module(f"models.{FILES[name]}").MODEL
    assert isinstance(model, RealModel)
    return model
