"""What the training scripts share: one seeded loop, one thread, one way of exporting.

A script is run as `python tests/benchmarks/training/NAME.py --work DIR`, in an environment with PyTorch, and
writes DIR/trained/NAME.onnx. Its data are the training split of the record of the same model in `models/`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the records and what they import

Tensors = tuple[torch.Tensor, ...]
OPSET = 18


def work_folder() -> Path:
    """Read --work from the command line; records read the work folder from the environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True, help="folder for data, models and results")
    work: Path = parser.parse_args().work.resolve()
    os.environ["QPROF_BENCHMARKS"] = str(work)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return work


def tensors(*arrays: np.ndarray) -> Tensors:
    """Return arrays as tensors."""
    return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)


def fit(
    net: torch.nn.Module,
    batch: Callable[[np.random.Generator], Tensors],
    loss: Callable[[Tensors], torch.Tensor],
    steps: int,
    rate: float = 2e-3,
) -> None:
    """Train with AdamW on one cycle of the learning rate (Smith and Topin, 2018)."""
    rng = np.random.default_rng(1)
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.15)
    started, total = time.monotonic(), 0.0
    net.train()
    for step in range(1, steps + 1):
        value = loss(batch(rng))
        optimiser.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        total += float(value.detach())
        if step % 100 == 0:
            print(f"{step}: loss {total / 100:.4f}, {time.monotonic() - started:.0f} s", flush=True)
            total = 0.0
    net.eval()


def export(
    net: torch.nn.Module,
    examples: Tensors,
    inputs: Sequence[str],
    outputs: Sequence[str],
    file: Path,
    *,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
) -> None:
    """Write the trained net as ONNX.

    Args:
        net: the net; put into evaluation mode.
        examples: one tensor for each input.
        inputs: names of the inputs, in the order of `forward`.
        outputs: names of the outputs.
        file: where to; its folder is made.
        dynamic: axes that differ from sample to sample, with names, by input.
    """
    net.eval()
    file.parent.mkdir(parents=True, exist_ok=True)
    shapes = None
    if dynamic:
        axes = {place: torch.export.Dim(place) for parts in dynamic.values() for place in parts.values()}
        shapes = [{axis: axes[name] for axis, name in dynamic.get(i, {}).items()} for i in inputs]
    with torch.no_grad():
        torch.onnx.export(
            net,
            examples,
            str(file),
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            dynamic_shapes=shapes,
            verbose=False,
        )
    print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", flush=True)
