"""The models of the benchmarks: real ones, one file each, loaded only when asked for; synthetic and aside
ones.
"""

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
    "piece-decoder": "piece_decoder",
    "noise-mask": "noise_mask",
    "vocoder": "vocoder",
    "pose": "pose",
    "length-regulator": "length_regulator",
    "corners": "corners",
    "voices": "voices",
    "matcher": "matcher",
    "backbone": "backbone",
    "figure-mask": "figure_mask",
    "counter": "counter",
    "maze-plan": "maze_plan",
    "clusters": "clusters",
    "denoise-step": "denoise_step",
    "recommender": "recommender",
    "hull-pointer": "hull_pointer",
    "marks": "marks",
    "surfaces": "surfaces",
}
# Those that nobody quantized while qprof was made: their figures are published as they came the first time,
# those of the first ones in README.md, of the others in VERSIONS.md.
KEPT_ASIDE_OF_VERSIONS = (
    "counter",
    "maze-plan",
    "clusters",
    "denoise-step",
    "recommender",
    "hull-pointer",
    "marks",
    "surfaces",
)
KEPT_ASIDE = (
    "langid",
    "syntax-graph",
    "forecast",
    "code-table",
    "g2p",
    "keywords",
    "texture-faults",
    "captions",
    *KEPT_ASIDE_OF_VERSIONS,
)
# Those with trained weights and a split for tuning that may be looked at.
TRAINED = tuple(name for name in FILES if name not in {"resnet50", "digits", *KEPT_ASIDE})


# Networks with random weights (synthetic.py), for kinds that no package ships: speed and SQNR only.
SYNTHETIC = ("mobile-v3", "prelu-sr", "u-net", "gru-speech", "encoder")
# Those of models/aside.py.
ASIDE = (
    *(
        "ppocr5-rec",
        "ppocr5-det",
        "ppocr6-rec-tiny",
        "ppocr6-det-tiny",
        "ppocr6-det-small",
        "seal-det",
        "en-rec",
    ),
    *(
        "ppocr2-rec",
        "ppocr3-det",
        "layout",
        "dnsmos",
        "dnsmos-sig",
        "aecmos",
        "aecmos-leaky",
        "plcmos",
        "tashkeel",
    ),
    "nakdimon",
)


def load(name: str) -> RealModel:
    """Return a model's record; its packages are imported now.

    Raises:
        SystemExit: there is no such model.
    """
    if name in FILES:
        model = importlib.import_module(f"models.{FILES[name]}").MODEL
    elif name in (*SYNTHETIC, *ASIDE):
        model = importlib.import_module("synthetic" if name in SYNTHETIC else "models.aside").MODELS[name]
    else:
        raise SystemExit(f"no model {name}; models are {', '.join((*FILES, *SYNTHETIC, *ASIDE))}")
    assert isinstance(model, RealModel)
    return model
