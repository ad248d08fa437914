"""TVM: the Relax importer, compiled with LLVM for the processor."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    module = from_onnx(onnx.load(model))
    module = relax.transform.LegalizeOps()(relax.transform.DecomposeOpsForInference()(module))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())

    def run(feed: Mapping[str, Any]) -> list[Any]:
        arrays = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in feed.values()]
        found = machine["main"](*arrays)
        return [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]

    return run
