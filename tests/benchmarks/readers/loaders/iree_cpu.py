"""IREE: torch-mlir's importer of ONNX, compiled with LLVM for the processor."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import iree.runtime
import numpy as np

TOOLS = Path(sys.executable).parent


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder) / "m.mlir", Path(folder) / "m.vmfb"
        # Versions below 17 are refused; its upgrade is onnx's converter.
        tool("iree-import-onnx", model, "--opset-version", "17", "-o", str(text))
        tool(
            "iree-compile",
            str(text),
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
            "-o",
            str(binary),
        )
        content = binary.read_bytes()
    config = iree.runtime.Config("local-task")
    module = iree.runtime.load_vm_module(
        iree.runtime.VmModule.copy_buffer(config.vm_instance, content), config
    )
    (name,) = [n for n in module.vm_module.function_names if "$async" not in n and "__init" not in n]

    def run(feed: Mapping[str, Any]) -> list[Any]:
        found = module[name](*(np.ascontiguousarray(array) for array in feed.values()))
        found = found if isinstance(found, tuple | list) else (found,)
        return [one.to_host() for one in found]

    return run


def tool(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [TOOLS / name, *arguments], check=False, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error:" in line or "Error" in line]
        raise RuntimeError(f"{name}: {lines[0] if lines else done.stderr[-300:]}")
