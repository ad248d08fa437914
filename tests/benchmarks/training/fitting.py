"""What the training scripts share: one seeded loop, one thread, one way of exporting.

A script is run as `python tests/benchmarks/training/NAME.py --work DIR`, in an environment with PyTorch, and
writes DIR/trained/NAME.onnx. Its data are the training split of the record of the same model in `models/`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the records and what they import
from cached_decoder import CachedDecoder
from frame import WORK

Tensors = tuple[torch.Tensor, ...]
OPSET = 18


def start() -> None:
    """Read --work from the command line, which the records read from the environment; seed the weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True, help="folder for data, models and results")
    os.environ[WORK] = str(parser.parse_args().work.resolve())
    torch.set_num_threads(1)
    torch.manual_seed(0)


def trained_file(name: str) -> Path:
    """Return where a file of a training script goes; its folder is made."""
    file = Path(os.environ[WORK]) / "trained" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def tensors(*arrays: np.ndarray) -> Tensors:
    """Return arrays as tensors."""
    return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)


def columns(samples: Iterable[Sequence[np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Return the samples' first parts as one array, their second parts as another, and so on."""
    return tuple(np.stack(column) for column in zip(*samples, strict=True))


def convolution(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a padded convolution without bias and its batch normalization."""
    layer = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outside)]


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
    name: str,
    net: torch.nn.Module,
    examples: Tensors,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
) -> Path:
    """Write the trained net as ONNX, and return the file.

    Args:
        name: of the file, without ".onnx".
        net: the net; put into evaluation mode.
        examples: one tensor for each input.
        inputs: names of the inputs, in the order of `forward`.
        outputs: names of the outputs.
        dynamic: axes that differ from sample to sample, with names, by input.
    """
    net.eval()
    file = trained_file(f"{name}.onnx")
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
    print_size(file)
    return file


def print_size(file: Path) -> None:
    print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB", flush=True)


def train_decoder(
    net: torch.nn.Module, decoder: CachedDecoder, *, texts: Sequence[np.ndarray], steps: int, rate: float
) -> None:
    """Train a decoder on whole passages, 12 at a time."""
    empty = tensors(*decoder.nothing())

    def batch(rng: np.random.Generator) -> Tensors:
        return tensors(np.stack(list(decoder.passages(rng, texts, 12))))

    def loss(rows: Tensors) -> torch.Tensor:
        past = [part.expand(12, -1, -1, -1) for part in empty]
        logits = net(rows[0][:, :-1], *past)[0]
        return nn.functional.cross_entropy(logits.flatten(0, 1), rows[0][:, 1:].flatten())

    fit(net, batch, loss, steps, rate)


def export_decoder(name: str, exported: torch.nn.Module, decoder: CachedDecoder) -> None:
    """Write a decoder with its caches; `exported` takes each of them as a parameter."""
    past = decoder.cache_names("past")
    cache = (
        torch.from_numpy(part).new_zeros(1, decoder.heads, 7, decoder.width) for part in decoder.nothing()
    )
    export(
        name,
        exported,
        (torch.zeros(1, 5, dtype=torch.int64), *cache),
        [decoder.tokens, *past],
        ["logits", *decoder.cache_names("present")],
        dynamic={decoder.tokens: {1: "new"}, **{name: {2: "before"} for name in past}},
    )
