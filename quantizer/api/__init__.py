"""qprof: profile-guided post-training quantization of ONNX models.

    import qprof_onnx as qprof

    qprof.dump_profile("model.onnx", "samples/", "profile.yaml")
    qprof.quantize("model.onnx", "profile.yaml", "model.int8.onnx")
    qprof.evaluate("model.onnx", "model.int8.onnx", "heldout/")

This file is `qprof_onnx/__init__.py` once installed (`package-dir` in pyproject.toml); its names are in the
stub beside it, and each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
