"""qprof: profile-guided post-training quantization of ONNX models.

    import qprof_onnx as qprof

    profile = qprof.profile("model.onnx", loader, transform=lambda batch: {"image": batch[0]})
    result = qprof.quantize("model.onnx", profile, calibrator="mse", keep_float=["Gemm_9"])
    report = qprof.evaluate("model.onnx", result, heldout)
    result.save("model.int8.onnx")

Functions:
    profile: run a model on samples and record statistics of its activations
    quantize: choose parameters; returns a model, a plan and a summary
    evaluate, compare_layers: the loss by quantization, at the outputs and in each layer
    tune: the best plan that meets a quality target
    card, verify, report: records and pages about a quantized model
    merge, diff: profiles of shards become one; new data against the old
    join, split: a model of several files, joined to be profiled and planned, and split into quantized files
    explain, instrument: why a tensor has its parameters; a model with profiling nodes
    import_profile, import_plan, export: files of other tools
    load_profile, load_plan, target_names, load_custom_operators

A model is a path, an `onnx.ModelProto` or an `onnx_ir.Model`, and an object is only read. Samples are a
folder, "module:function", or an iterable, such as a list, a generator or a data loader. Profiles and plans
are paths or objects. Settings and options are records (`QuantConfig`, `QuantizeOptions`, `Judge`),
and at a prompt their fields are keywords. Every result has `to_dict()`, `to_markdown()`, `save(path)` and a
table for notebooks. Errors are children of `QprofError`.

This file is `qprof_onnx/__init__.py` once installed (`package-dir` in pyproject.toml); its names are in the
stub beside it, and each is imported when it is first used.
"""

import os
from typing import Any

import lazy_loader

from .profiles.base.errors import nearest
from .profiles.base.quick_imports import quick_imports

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads it when it is imported

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Return the object of a public name; the first call imports the modules that all names need.

    Raises:
        AttributeError: there is no such name; the nearest is suggested.
    """
    if name not in __all__ and not name.startswith("_"):
        meant = nearest({"dump_profile": "profile"}.get(name, name), __all__)
        message = f"module {__name__!r} has no attribute {name!r}.{meant}".removesuffix(".")
        raise AttributeError(message, name=name, obj=None)  # no module: Python would suggest once more
    with quick_imports():
        return _imported(name)
