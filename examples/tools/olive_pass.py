"""qprof as a pass of Olive: `PYTHONPATH=. olive run --config olive.json --package-config olive_package.json`.

Both files lie beside this one; run them in their folder. Needs olive-ai.
"""

from pathlib import Path

import qprof_onnx as qprof
from olive.hardware.accelerator import AcceleratorSpec
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.passes import Pass
from olive.passes.pass_config import BasePassConfig, PassConfigParam


class QprofQuantization(Pass):
    """Quantizes by samples; `settings` are keywords of `qprof.quantize`, its verdict is a model attribute."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        return {
            "data": PassConfigParam(type_=str, required=True, description="Samples, as --data takes them."),
            "preprocess": PassConfigParam(
                type_=str, default_value=None, description="Recipe of the samples."
            ),
            "settings": PassConfigParam(type_=dict, default_value={}, description="Settings of --config."),
        }

    def _run_for_config(
        self, model: ONNXModelHandler, config: type[BasePassConfig], output_model_path: str
    ) -> ONNXModelHandler:
        output = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        result = qprof.quantize(
            model.model_path, config.data, preprocess=config.preprocess, output=output, **config.settings
        )
        return ONNXModelHandler(output, model_attributes={"qprof": str(result.verdict)})
