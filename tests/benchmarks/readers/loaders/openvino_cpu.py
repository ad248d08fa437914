"""OpenVINO on the processor, in float32 where it computes in float."""

from collections.abc import Callable, Mapping
from typing import Any

import openvino

SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", SETTINGS)

    def run(feed: Mapping[str, Any]) -> list[Any]:
        found = compiled(dict(feed))
        return [found[place] for place in range(len(compiled.outputs))]

    return run
