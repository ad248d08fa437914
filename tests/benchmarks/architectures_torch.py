"""Networks that nobody here wrote, as ONNX files: torch.nn, timm and transformers, with seeded weights.

    python tests/benchmarks/architectures_torch.py --networks DIR [--families layers,timm,transformers]
        [--exporters dynamo,torchscript] [--only WORD] [--subset 40] [--seconds 90]

Runs in an environment with torch, timm, torchvision and transformers, and without qprof. Each network is
written twice where both work: by PyTorch's exporter of today (dynamo) and by the older one (torchscript).
DIR then has for each a folder `FAMILY.NAME.EXPORTER` with model.onnx and samples.npz (sample number and
input in each name), or refused.txt with what the exporter said. A folder that is there is left as it is, so
that a run can be continued. Each export is a process of its own, with a limit of time. `architectures.py`
quantizes them.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

EXPORTERS = ("dynamo", "torchscript")
SAMPLES = 40
LARGEST = 8_000_000
LOWEST = float(torch.finfo(torch.float32).min)
Inputs = dict[str, np.ndarray]
Case = tuple[str, Callable[[], nn.Module], Callable[[np.random.Generator], Inputs]]
"""Name of a network, what builds it, and what draws a sample."""


def normal(*shape: int, scale: float = 1.0) -> Callable[[np.random.Generator], Inputs]:
    """Return a source of one input `x` of normal values."""
    return lambda rng: {"x": (scale * rng.standard_normal(shape)).astype(np.float32)}


def levels(*shape: int) -> Callable[[np.random.Generator], Inputs]:
    """Return a source of smooth values, as pictures have: noise of neighbours is alike."""

    def draw(rng: np.random.Generator) -> Inputs:
        x = rng.standard_normal(shape)
        for axis in range(2, len(shape)):
            x = (x + np.roll(x, 1, axis) + np.roll(x, 2, axis)) / 1.8
        return {
            "x": (x + 0.3 * rng.standard_normal((1, shape[1]) + (1,) * (len(shape) - 2))).astype(np.float32)
        }

    return draw


def tokens(words: int, length: int, mask: bool = False) -> Callable[[np.random.Generator], Inputs]:
    """Return a source of token numbers, with a mask of padding where asked for."""

    def draw(rng: np.random.Generator) -> Inputs:
        found: Inputs = {"x": rng.integers(0, words, (1, length))}
        if mask:
            found["mask"] = (np.arange(length) < rng.integers(length // 2, length + 1))[None].astype(np.int64)
        return found

    return draw


class Function(nn.Module):
    """Modules, and a function of them and of the inputs."""

    def __init__(self, forward: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def recurrent() -> Iterator[Case]:
    """Yield LSTM, GRU and RNN with each way to read them."""
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for read in ("y", "last-step", "h[-1]", "all-h", "c", "mean", "packed", "y-and-h"):
            if read == "c" and kind is not nn.LSTM:
                continue
            for layers, both in ((1, False), (2, True), (3, False)):
                if (layers == 3 and read not in ("h[-1]", "y")) or (both and read == "last-step"):
                    continue

                def build(
                    kind: Any = kind, read: str = read, layers: int = layers, both: bool = both
                ) -> nn.Module:
                    def forward(m: Any, x: torch.Tensor, lengths: torch.Tensor | None = None) -> Any:
                        taken = x
                        if lengths is not None:
                            taken = nn.utils.rnn.pack_padded_sequence(
                                x, lengths, batch_first=True, enforce_sorted=False
                            )
                        y, state = m.rnn(taken)
                        if lengths is not None:
                            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
                        h, c = state if isinstance(state, tuple) else (state, state)
                        taken = {
                            "y": lambda: y,
                            "last-step": lambda: y[:, -1],
                            "h[-1]": lambda: h[-1],
                            "all-h": lambda: h.transpose(0, 1).flatten(1),
                            "c": lambda: c[-1],
                            "mean": lambda: y.mean(1),
                            "packed": lambda: torch.cat([h[0], h[-1]], -1),
                            "y-and-h": lambda: y,
                        }[read]()
                        out = m.head(taken)
                        return (out, h) if read == "y-and-h" else out

                    directions = 2 if both else 1
                    width = {
                        "h[-1]": 48,
                        "c": 48,
                        "all-h": 48 * layers * directions,
                        "packed": 96,
                    }.get(read, 48 * directions)
                    rnn = kind(20, 48, layers, batch_first=True, bidirectional=both)
                    return Function(forward, rnn=rnn, head=nn.Linear(width, 10))

                name = f"{kind.__name__}-{read}-{layers}{'-bidirectional' if both else ''}"
                if read == "packed":

                    def draw(rng: np.random.Generator) -> Inputs:
                        return {
                            "x": rng.standard_normal((2, 24, 20)).astype(np.float32),
                            "lengths": np.array([24, rng.integers(8, 24)]),
                        }

                    yield name, build, draw
                else:
                    yield name, build, normal(2, 24, 20)
    yield (
        "GRUCell-loop",
        lambda: Function(
            lambda m, x: m.head(_stepped(m.cell, x)), cell=nn.GRUCell(16, 32), head=nn.Linear(32, 8)
        ),
        normal(1, 6, 16),
    )
    yield (
        "LSTMCell-loop",
        lambda: Function(
            lambda m, x: m.head(_stepped(m.cell, x)), cell=nn.LSTMCell(16, 32), head=nn.Linear(32, 8)
        ),
        normal(1, 6, 16),
    )
    yield (
        "speech-conv-LSTM",
        lambda: Function(
            lambda m, x: torch.log_softmax(m.head(m.rnn(m.conv(x).transpose(1, 2))[0]), -1),
            conv=nn.Sequential(nn.Conv1d(40, 64, 5, 2, 2), nn.BatchNorm1d(64), nn.ReLU()),
            rnn=nn.LSTM(64, 48, 2, batch_first=True, bidirectional=True),
            head=nn.Linear(96, 29),
        ),
        normal(1, 40, 64),
    )


def _stepped(cell: nn.Module, x: torch.Tensor) -> torch.Tensor:
    state: Any = None
    for step in range(x.shape[1]):
        state = cell(x[:, step], state) if state is not None else cell(x[:, step])
    return state[0] if isinstance(state, tuple) else state


class Attention(nn.Module):
    """A block of attention and a feed-forward net, with a mask of one kind and one spelling."""

    def __init__(self, mask: str, spelling: str) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)
        self.norm, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down, self.head = nn.Linear(64, 128), nn.Linear(128, 64), nn.Linear(64, 20)
        self.mask, self.spelling = mask, spelling

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        h = self.table(x)
        length = x.shape[1]
        q, k, v = self.qkv(self.norm(h)).view(1, length, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
        if padding is None:
            seen = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        else:
            seen = padding.bool()[:, None, None, :]
        if self.spelling == "sdpa":
            taken = None if self.mask == "none" else seen
            a = nn.functional.scaled_dot_product_attention(q, k, v, taken)
        else:
            scores = q @ k.transpose(-1, -2) / 4.0
            filler = {"none": 0.0, "-1e4": -1e4, "-inf": -torch.inf, "lowest": LOWEST}[self.mask]
            if self.mask != "none" and self.spelling == "add":
                scores = scores + (1.0 - seen.float()) * (filler if np.isfinite(filler) else LOWEST)
            elif self.mask != "none":
                scores = scores.masked_fill(~seen, filler)
            a = torch.softmax(scores, -1) @ v
        h = h + self.out(a.transpose(1, 2).flatten(2))
        h = h + self.down(nn.functional.gelu(self.up(self.norm2(h))))
        return self.head(h)


def attention() -> Iterator[Case]:
    """Yield attention with each kind of mask, and PyTorch's own transformers."""
    for mask in ("none", "-1e4", "-inf", "lowest"):
        for spelling in ("add", "fill", "sdpa"):
            if (spelling, mask) in (("add", "-inf"), ("sdpa", "-1e4"), ("sdpa", "lowest")):
                continue
            for padding in (False, True):
                name = f"attention-{spelling}-{mask}-{'padding' if padding else 'causal'}"
                yield (
                    name,
                    lambda m=mask, s=spelling: Attention(m, s),  # type: ignore[misc]
                    tokens(100, 16, padding),
                )
    for first in (False, True):
        yield (
            f"TransformerEncoder{'-norm-first' if first else ''}",
            lambda f=first: nn.TransformerEncoder(  # type: ignore[misc]
                nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, norm_first=f),
                2,
                enable_nested_tensor=False,
            ),
            normal(1, 12, 48),
        )
    yield (
        "TransformerDecoder",
        lambda: Function(
            lambda m, x: m.d(x, x.flip(1), tgt_mask=nn.Transformer.generate_square_subsequent_mask(12)),
            d=nn.TransformerDecoder(nn.TransformerDecoderLayer(48, 4, 96, batch_first=True), 2),
        ),
        normal(1, 12, 48),
    )
    yield (
        "MultiheadAttention-weights",
        lambda: Function(lambda m, x: m.a(x, x, x), a=nn.MultiheadAttention(48, 4, batch_first=True)),
        normal(1, 12, 48),
    )


ACTIVATIONS = """
    ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU
    GELU Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink Threshold GLU Softmin Softmax
    LogSoftmax Softmax2d
"""


def activation(name: str) -> nn.Module:
    """Return a layer of an activation."""
    if name == "Threshold":
        return nn.Threshold(0.1, -0.2)
    if name in ("GLU", "Softmin", "Softmax", "LogSoftmax"):
        return getattr(nn, name)(dim=1)  # type: ignore[no-any-return]
    return getattr(nn, name)()  # type: ignore[no-any-return]


def convolutional() -> Iterator[Case]:
    """Yield a small network of convolutions for each activation, norm, padding, pooling and upsampling."""
    for name in ACTIVATIONS.split():
        wide = 32 if name == "GLU" else 16

        def build(name: str = name, wide: int = wide) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(3, wide, 3, 2, 1),
                nn.BatchNorm2d(wide),
                activation(name),
                nn.Conv2d(16, wide, 3, 1, 1),
                activation(name),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(16, 10),
            )

        yield f"activation-{name}", build, levels(1, 3, 32, 32)
    norms: Mapping[str, Callable[[], nn.Module]] = {
        "BatchNorm2d": lambda: nn.BatchNorm2d(16),
        "GroupNorm": lambda: nn.GroupNorm(4, 16),
        "GroupNorm-1": lambda: nn.GroupNorm(1, 16),
        "InstanceNorm2d": lambda: nn.InstanceNorm2d(16, affine=True),
        "InstanceNorm2d-plain": lambda: nn.InstanceNorm2d(16),
        "LayerNorm": lambda: nn.LayerNorm([16, 16, 16]),
        "LocalResponseNorm": lambda: nn.LocalResponseNorm(5),
        "RMSNorm": lambda: nn.RMSNorm([16, 16, 16]),
        "Dropout": nn.Dropout,
    }
    for name, norm in norms.items():
        yield (
            f"norm-{name}",
            lambda n=norm: nn.Sequential(  # type: ignore[misc]
                nn.Conv2d(3, 16, 3, 2, 1), n(), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), n(), nn.SiLU()
            ),
            levels(1, 3, 32, 32),
        )
    for mode in ("zeros", "reflect", "replicate", "circular"):
        for kind, shape in (
            (nn.Conv1d, (1, 4, 32)),
            (nn.Conv2d, (1, 4, 16, 16)),
            (nn.Conv3d, (1, 4, 6, 8, 8)),
        ):
            yield (
                f"padding-{mode}-{kind.__name__}",
                lambda k=kind, m=mode: nn.Sequential(  # type: ignore[misc]
                    k(4, 16, 3, padding=1, padding_mode=m),
                    nn.ReLU(),
                    k(16, 8, 3, padding=1, padding_mode=m),
                ),
                levels(*shape),
            )
    pools: Mapping[str, Callable[[], nn.Module]] = {
        "MaxPool2d": lambda: nn.MaxPool2d(3, 2, 1),
        "MaxPool2d-ceil": lambda: nn.MaxPool2d(3, 2, ceil_mode=True),
        "MaxPool2d-dilated": lambda: nn.MaxPool2d(2, 1, dilation=2),
        "AvgPool2d": lambda: nn.AvgPool2d(3, 2, 1),
        "AvgPool2d-ceil-exclude": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        "LPPool2d": lambda: nn.LPPool2d(2, 2),
        "AdaptiveAvgPool2d-4": lambda: nn.AdaptiveAvgPool2d(4),
        "AdaptiveMaxPool2d-1": lambda: nn.AdaptiveMaxPool2d(1),
        "PixelUnshuffle": lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(64, 16, 1)),
    }
    for name, pool in pools.items():
        yield (
            f"pool-{name}",
            lambda p=pool: nn.Sequential(  # type: ignore[misc]
                nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), p(), nn.Conv2d(16, 8, 1)
            ),
            levels(1, 3, 16, 16),
        )
    ups: Mapping[str, Callable[[], nn.Module]] = {
        "nearest": lambda: nn.Upsample(scale_factor=2),
        "bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        "bilinear-corners": lambda: nn.Upsample(size=(24, 24), mode="bilinear", align_corners=True),
        "bicubic": lambda: nn.Upsample(scale_factor=2, mode="bicubic"),
        "nearest-1.5": lambda: nn.Upsample(scale_factor=1.5),
        "PixelShuffle": lambda: nn.Sequential(nn.Conv2d(16, 64, 1), nn.PixelShuffle(2)),
        "ConvTranspose2d": lambda: nn.ConvTranspose2d(16, 16, 4, 2, 1),
        "ConvTranspose2d-output-padding": lambda: nn.ConvTranspose2d(16, 16, 3, 2, 1, output_padding=1),
        "ConvTranspose2d-groups": lambda: nn.ConvTranspose2d(16, 16, 3, 2, 1, groups=4),
    }
    for name, up in ups.items():
        yield (
            f"up-{name}",
            lambda u=up: nn.Sequential(  # type: ignore[misc]
                nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), u(), nn.Conv2d(16, 3, 3, 1, 1), nn.Tanh()
            ),
            levels(1, 3, 24, 24),
        )
    for kinds, shape in (
        ((nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d), (1, 8, 64)),
        ((nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d, nn.AdaptiveAvgPool3d), (1, 3, 8, 16, 16)),
    ):
        conv, norm_of, pool_of, adaptive = kinds
        yield (
            f"network-{conv.__name__}",
            lambda c=conv, n=norm_of, p=pool_of, a=adaptive, w=shape[1]: nn.Sequential(  # type: ignore[misc]
                *(c(w, 24, 3, padding=1), n(24), nn.ReLU(), p(2)),
                *(c(24, 32, 3, padding=1), n(32), nn.ReLU(), a(1), nn.Flatten(), nn.Linear(32, 10)),
            ),
            levels(*shape),
        )


class Unet(nn.Module):
    """Two levels down and up, with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Conv2d(3, 16, 3, 1, 1),
            nn.Conv2d(16, 32, 3, 1, 1),
            nn.Conv2d(32, 32, 3, 1, 1),
        )
        self.up, self.d, self.e = (
            nn.ConvTranspose2d(32, 16, 2, 2),
            nn.Conv2d(32, 16, 3, 1, 1),
            nn.Conv2d(16, 2, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(self.a(x))
        b = torch.relu(self.c(torch.relu(self.b(nn.functional.max_pool2d(a, 2)))))
        return torch.sigmoid(self.e(torch.relu(self.d(torch.cat([a, self.up(b)], 1)))))


class Recommender(nn.Module):
    """Tables of sparse features, a net of dense ones, and their products: as DLRM."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(n, 16, mode=mode) for n in (50, 200, 30)])
        self.low = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
        self.high = nn.Sequential(nn.Linear(22, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        dense = self.low(x)
        rows = torch.stack([dense, *(bag(ids[:, 4 * i : 4 * i + 4]) for i, bag in enumerate(self.bags))], 1)
        row, column = torch.triu_indices(4, 4, 1)
        return self.high(torch.cat([dense, (rows @ rows.transpose(1, 2))[:, row, column]], 1))


def small_networks() -> Iterator[Case]:
    """Yield small networks as people write them."""

    def clicks(rng: np.random.Generator) -> Inputs:
        return {"x": rng.standard_normal((8, 13)).astype(np.float32), "ids": rng.integers(0, 30, (8, 12))}

    yield "unet", Unet, levels(1, 3, 32, 32)
    for mode in ("sum", "mean", "max"):
        yield f"recommender-EmbeddingBag-{mode}", lambda m=mode: Recommender(m), clicks  # type: ignore[misc]
    yield (
        "two-heads",
        lambda: Function(
            lambda m, x: (torch.softmax(m.a(m.body(x)), -1), m.b(m.body(x))),
            body=nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
            a=nn.Linear(64, 10),
            b=nn.Linear(64, 4),
        ),
        levels(1, 3, 32, 32),
    )
    yield (
        "autoencoder",
        lambda: nn.Sequential(
            *(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 32), nn.ReLU()),
            nn.Linear(32, 64),
        ),
        normal(4, 64),
    )
    yield (
        "tabular-BatchNorm1d",
        lambda: nn.Sequential(
            nn.BatchNorm1d(20), nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1)
        ),
        normal(4, 20, scale=30.0),
    )
    yield (
        "Bilinear",
        lambda: Function(lambda m, x: m.b(x, x.flip(0)), b=nn.Bilinear(12, 12, 8)),
        normal(4, 12),
    )
    yield (
        "text-cnn",
        lambda: Function(
            lambda m, x: m.head(
                torch.cat([torch.relu(c(m.table(x).transpose(1, 2))).amax(2) for c in m.convs], 1)
            ),
            table=nn.Embedding(200, 32),
            convs=nn.ModuleList([nn.Conv1d(32, 16, k) for k in (3, 4, 5)]),
            head=nn.Linear(48, 4),
        ),
        tokens(200, 24),
    )
    yield (
        "depthwise-squeeze-excite",
        lambda: Function(
            lambda m, x: m.head(m.b(x) * torch.sigmoid(m.s(m.b(x).mean((2, 3), keepdim=True)))),
            b=nn.Sequential(
                *(nn.Conv2d(3, 24, 1), nn.Hardswish(), nn.Conv2d(24, 24, 3, 1, 1, groups=24)),
                *(nn.BatchNorm2d(24), nn.Hardswish()),
            ),
            s=nn.Conv2d(24, 24, 1),
            head=nn.Conv2d(24, 8, 1),
        ),
        levels(1, 3, 16, 16),
    )
    yield (
        "einsum-and-norms",
        lambda: Function(
            lambda m, x: torch.einsum("bij,bkj->bik", m.a(x), nn.functional.normalize(m.b(x), dim=-1)),
            a=nn.Linear(16, 24),
            b=nn.Linear(16, 24),
        ),
        normal(2, 8, 16),
    )
    yield (
        "grid-sample",
        lambda: Function(
            lambda m, x: nn.functional.grid_sample(
                m.c(x),
                nn.functional.affine_grid(
                    m.t(x.mean((2, 3))).view(-1, 2, 3), [1, 8, 16, 16], align_corners=False
                ),
                align_corners=False,
            ),
            c=nn.Conv2d(3, 8, 3, 1, 1),
            t=nn.Linear(3, 6),
        ),
        levels(1, 3, 16, 16),
    )
    yield (
        "top-k-of-scores",
        lambda: Function(lambda m, x: tuple(torch.topk(m.h(x), 5)), h=nn.Linear(32, 40)),
        normal(2, 32),
    )
    yield (
        "siamese-cosine",
        lambda: Function(
            lambda m, x: nn.functional.cosine_similarity(m.e(x[:, 0]), m.e(x[:, 1])),
            e=nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)),
        ),
        normal(4, 2, 32),
    )
    yield (
        "mixture-of-experts",
        lambda: Function(
            lambda m, x: (
                torch.softmax(m.gate(x), -1)[..., None] * torch.stack([e(x) for e in m.experts], 1)
            ).sum(1),
            gate=nn.Linear(32, 4),
            experts=nn.ModuleList(
                [nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 16)) for _ in range(4)]
            ),
        ),
        normal(4, 32),
    )
    yield (
        "tcn-weight-norm",
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 24, 3, padding=2, dilation=2)),
            nn.ReLU(),
            nn.utils.parametrizations.weight_norm(nn.Conv1d(24, 24, 3, padding=4, dilation=4)),
            nn.ReLU(),
            nn.Conv1d(24, 4, 1),
        ),
        normal(1, 8, 64),
    )


def layers() -> Iterator[Case]:
    """Yield layers and small networks of torch.nn."""
    yield from recurrent()
    yield from attention()
    yield from convolutional()
    yield from small_networks()


def declare_operators_of_torchvision() -> None:
    """Declare the operators that torchvision registers shapes for: its build for CUDA has no library here.

    timm asks torchvision for classes of Python alone; none of these operators is in its networks.
    """
    import importlib.util

    if DECLARED:
        return
    where = importlib.util.find_spec("torchvision")
    if where is None or where.origin is None:
        return
    with contextlib.suppress(OSError, RuntimeError):
        DECLARED.append(torch.ops.load_library(str(Path(where.origin).parent / "_C.so")))
        return
    text = Path(where.origin).with_name("_meta_registrations.py").read_text(encoding="utf-8")
    library = torch.library.Library("torchvision", "DEF")
    DECLARED.append(library)
    for name in re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"\)', text):
        library.define(f"{name}() -> ()")


DECLARED: list[Any] = []


def timm_networks() -> Iterator[Case]:
    """Yield a member of each module of timm: that with the fewest parameters that takes small pictures."""
    import timm

    for module in timm.list_modules():
        names = timm.list_models(module=module)
        if not names:
            continue
        words = (
            "test_",
            "atto",
            "femto",
            "pico",
            "nano",
            "zepto",
            "tiny",
            "xxs",
            "_xs",
            "mini",
            "small",
            "_s",
            "18",
        )
        ranked = sorted(
            names, key=lambda n: (next((i for i, w in enumerate(words) if w in n), 99), len(n), n)
        )

        def build(ranked: Sequence[str] = tuple(ranked)) -> nn.Module:
            for name in ranked[:6]:
                with torch.device("meta"), contextlib.suppress(Exception):
                    if sum(p.numel() for p in timm.create_model(name, num_classes=10).parameters()) > LARGEST:
                        continue
                for size in (64, 96, 128):
                    for sized in ({"img_size": size}, {}):
                        with contextlib.suppress(Exception):
                            made = timm.create_model(name, pretrained=False, num_classes=10, **sized).eval()
                            channels = made.default_cfg["input_size"][0]
                            with torch.no_grad():
                                made(torch.zeros(2, channels, size, size))
                            made.picture, made.told = (1, channels, size, size), name
                            return made  # type: ignore[no-any-return]
            raise ValueError(
                f"none of {ranked[:6]} takes pictures of 64 to 128 pixels with {LARGEST} weights"
            )

        yield module, build, lambda rng: {}


SIZES = """
64: hidden_size d_model n_embd embed_dim dim hidden_dim encoder_hidden_size emb_dim embedding_size d_embed
    decoder_hidden_size word_embed_proj_dim model_dim projection_dim output_dim conv_dim_out decoder_dim
    d_inner_size width lru_width attention_hidden_size output_hidden_size decoder_hidden_dim
    max_position_embeddings n_positions max_source_positions max_target_positions image_size img_size
    max_2d_position_embeddings
96: intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim d_inner hidden_dim_ff
    moe_intermediate_size shared_expert_intermediate_size dim_feedforward encoder_intermediate_size
    ffn_hidden_size attention_dim mlp_hidden_size
2: num_hidden_layers n_layer n_layers encoder_layers decoder_layers num_layers depth num_encoder_layers
    num_decoder_layers encoder_num_layers decoder_num_layers num_key_value_heads num_kv_heads n_head_kv
4: num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads num_heads
    attention_heads encoder_num_attention_heads decoder_num_attention_heads num_attention_head
    linear_num_key_heads
    linear_num_value_heads mamba_n_heads num_experts num_local_experts n_routed_experts moe_num_experts
16: head_dim d_kv v_head_dim qk_nope_head_dim dim_head q_lora_rank kv_lora_rank linear_key_head_dim
    linear_value_head_dim num_buckets
8: qk_rope_head_dim rotary_dim sliding_window
120: vocab_size n_vocab entity_vocab_size num_embeddings
1: num_experts_per_tok n_group topk_group moe_k moe_topk bos_token_id eos_token_id sep_token_id cls_token_id
    decoder_start_token_id first_k_dense_replace
5: num_labels
0: pad_token_id pad_index num_nextn_predict_layers layerdrop
"""
"""Sizes of small models, and the names that they have in configurations."""

SMALL: dict[str, Any] = {
    name: int(size)
    for size, names in re.findall(r"^(\d+):((?:\s+[a-z_]\w*)+)", SIZES, re.MULTILINE)
    for name in names.split()
} | {"use_cache": False, "use_mamba_kernels": False}

KINDS = """
    albert apertus arcee audio-spectrogram-transformer bamba bart beit bert bert-generation big_bird
    bigbird_pegasus biogpt bit bitnet blenderbot blenderbot-small bloom camembert canine clip
    clip_vision_model clipseg codegen cohere cohere2 convbert convnext convnextv2 ctrl cvt cwm
    data2vec-audio data2vec-text data2vec-vision deberta deberta-v2 deepseek_v2 deepseek_v3 deit
    depth_anything detr diffllama dinov2 dinov2_with_registers dinov3_convnext dinov3_vit distilbert doge
    dots1 dpt efficientformer efficientnet electra ernie ernie4_5 esm eurobert exaone4 falcon falcon_h1
    falcon_mamba flaubert fnet focalnet fsmt funnel gemma gemma2 gemma3_text glm glm4 glpn gpt2
    gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granitemoe helium hgnet_v2 hiera
    hubert hunyuan_v1_dense ibert ijepa imagegpt informer jamba jetmoe layoutlm layoutlmv3 led levit lfm2
    lilt llama longformer longt5 luke m2m_100 mamba mamba2 marian markuplm mbart megatron-bert metaclip_2
    mgp-str minimax mistral mixtral mobilebert mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 modernbert
    modernbert-decoder moonshine mpnet mpt mra mt5 mvp nemotron nystromformer olmo olmo2 olmoe openai-gpt
    opt pegasus pegasus_x perceiver persimmon phi phi3 phimoe plbart poolformer prophetnet pvt pvt_v2
    qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma reformer regnet rembert resnet roberta
    roberta-prelayernorm roc_bert roformer rt_detr_resnet rwkv seed_oss segformer seggpt sew sew-d siglip
    siglip_vision_model smollm3 speech_to_text splinter squeezebert stablelm starcoder2 swiftformer swin
    swin2sr swinv2 switch_transformers t5 t5gemma table-transformer textnet timesformer trocr umt5
    unispeech unispeech-sat upernet vaultgemma vilt vit vit_mae vit_msn vitdet vitmatte vits wav2vec2
    wav2vec2-bert wav2vec2-conformer wavlm whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet xlstm xmod
    yolos yoso zamba zamba2
"""
"""The types of transformers that a network of text, pictures or sound alone can be made of."""

HEADS = """
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING MODEL_FOR_CAUSAL_LM_MAPPING MODEL_FOR_MASKED_LM_MAPPING
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING MODEL_FOR_CTC_MAPPING MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING
    MODEL_FOR_OBJECT_DETECTION_MAPPING
"""


def shrink(config: Any) -> Any:
    """Make a configuration small, with those inside of it."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value)
        elif name in SMALL and value is not None and not isinstance(value, list | tuple | dict):
            with contextlib.suppress(Exception):
                setattr(config, name, SMALL[name])
        elif name in ("layer_types", "layers_block_type", "block_types", "mlp_layer_types") and value:
            with contextlib.suppress(Exception):
                setattr(config, name, [*value[:1], *[v for v in value if v != value[0]][:1], *value[:1]][:2])
    return config


class Tensors(nn.Module):
    """A model of transformers that takes its inputs in a fixed order and returns tensors alone."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = dict(zip(self.names, inputs, strict=True))
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            given["use_cache"] = False  # type: ignore[assignment]
        found = self.model(**given)
        keys = ("logits", "last_hidden_state", "pooler_output", "pred_boxes", "image_embeds", "text_embeds")
        taken = [found[key] for key in keys if key in found and isinstance(found[key], torch.Tensor)]
        if not taken:
            taken = [value for value in found.to_tuple() if isinstance(value, torch.Tensor)][:2]
        return tuple(taken)


def transformers_networks() -> Iterator[Case]:
    """Yield each type of transformers, with one of its heads."""
    from transformers.models.auto import configuration_auto, modeling_auto

    for kind in KINDS.split():
        if kind not in configuration_auto.CONFIG_MAPPING_NAMES:
            continue

        def build(kind: str = kind) -> nn.Module:
            config_class = configuration_auto.CONFIG_MAPPING[kind]
            config = shrink(config_class())
            with contextlib.suppress(Exception):
                config = shrink(config_class(**{k: v for k, v in SMALL.items() if hasattr(config, k)}))
            mappings = [getattr(modeling_auto, head) for head in HEADS.split()] + [
                modeling_auto.MODEL_MAPPING
            ]
            chosen = [m[config_class] for m in mappings if config_class in m]
            if not chosen:
                raise ValueError("no model of its own")
            made = chosen[len(kind) % len(chosen)]
            made = made[0] if isinstance(made, tuple) else made
            way = ("eager", "sdpa")[len(kind) % 2]
            try:
                model = made._from_config(config, attn_implementation=way)
            except ValueError:
                model = made._from_config(config, attn_implementation="eager")
            count = sum(p.numel() for p in model.parameters())
            if count > LARGEST:
                raise ValueError(f"{count} weights, more than {LARGEST}")
            asked = inspect.signature(model.forward).parameters
            names = [
                n
                for n in (
                    "input_ids",
                    "attention_mask",
                    "pixel_values",
                    "input_values",
                    "input_features",
                    "bbox",
                )
                if n in asked
            ]
            if "pixel_values" in names and "input_ids" not in names:
                names = [n for n in names if n == "pixel_values"]
            if "input_values" in names or "input_features" in names:
                names = [n for n in names if n in ("input_values", "input_features")][:1]
            if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in asked:
                names.append("decoder_input_ids")
            if not names:
                raise ValueError(f"takes {list(asked)[:4]}")
            wrapped = Tensors(model, names)
            wrapped.config = config
            wrapped.told = type(model).__name__
            return wrapped

        yield kind, build, lambda rng: {}


def inputs_of(model: Any, rng: np.random.Generator) -> Inputs:
    """Return a sample for a network of timm or transformers."""
    if hasattr(model, "picture"):
        return levels(*model.picture)(rng)
    config = model.config
    found: Inputs = {}
    for name in model.names:
        if name.endswith("input_ids"):
            found[name] = rng.integers(3, 110, (1, 16))
        elif name == "attention_mask":
            found[name] = (np.arange(16) < rng.integers(10, 17))[None].astype(np.int64)
        elif name == "bbox":
            found[name] = np.sort(rng.integers(0, 60, (1, 16, 4)), axis=-1)[..., [0, 1, 2, 3]]
        elif name == "pixel_values":
            inner = getattr(config, "vision_config", config)
            size = getattr(inner, "image_size", None) or 64
            high, wide = (size, size) if isinstance(size, int) else tuple(size)
            channels = getattr(inner, "num_channels", 3) or 3
            found[name] = levels(1, channels, high, wide)(rng)["x"]
        elif name == "input_features":
            bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
            long = 2 * getattr(config, "max_source_positions", 64)
            shape = (1, bins, long) if "hisper" in model.told else (1, 64, bins)
            found[name] = rng.standard_normal(shape).astype(np.float32)
        else:
            deep = getattr(config, "max_length", 1024)
            bins = getattr(config, "num_mel_bins", None)
            shape = (1, deep, bins) if bins and model.told.startswith("AST") else (1, 4000)
            found[name] = rng.standard_normal(shape).astype(np.float32)
    return found


def enliven(model: nn.Module, seed: int) -> None:
    """Make weights random that are constant, and larger that are so small that nothing comes through."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not value.is_floating_point() or value.numel() < 2:
                continue
            drawn = torch.randn(value.shape, generator=rng)
            if "running_var" in name:
                value.mul_(1 + 0.2 * drawn.abs())
            elif value.std() == 0 and (isinstance(value, nn.Parameter) or "running_mean" in name):
                value.add_(0.1 * drawn)
            elif isinstance(value, nn.Parameter) and value.dim() > 1:
                fan_in = value[0].numel()
                if value.std() * fan_in**0.5 < 0.4 and "embed" not in name:
                    value.mul_(0.7 / (value.std() * fan_in**0.5))


FAMILIES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "layers": layers,
    "timm": timm_networks,
    "transformers": transformers_networks,
}


def export(family: str, name: str, exporter: str, folder: Path) -> None:
    """Write one network and its samples."""
    seed = sum(map(ord, name))
    torch.manual_seed(seed)
    (case,) = [case for case in FAMILIES[family]() if case[0] == name]
    _, build, draw = case
    model = build().eval()
    enliven(model, seed)
    rng = np.random.default_rng(seed)
    own = family != "layers"
    samples = [inputs_of(model, rng) if own else draw(rng) for _ in range(SAMPLES)]
    names = list(samples[0])
    given = tuple(torch.from_numpy(samples[0][n]) for n in names)
    with torch.no_grad():
        model(*given)
        options: dict[str, Any] = {"input_names": names, "dynamo": exporter == "dynamo"}
        if exporter == "torchscript":
            options["opset_version"] = 17
        part = folder / "part.onnx"
        torch.onnx.export(model, given, str(part), **options, external_data=False)
    arrays = {f"{i} {n}": s[n] for i, s in enumerate(samples) for n in names}
    np.savez(folder / "samples.npz", **arrays)
    (folder / "told.txt").write_text(getattr(model, "told", name), encoding="utf-8")
    part.rename(folder / "model.onnx")


def export_quietly(family: str, name: str, exporter: str, folder: Path) -> None:
    """Write one network; what is said on the way, and the error, go to `said.txt`."""
    with (folder / "said.txt").open("w", encoding="utf-8") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            export(family, name, exporter, folder)
        except Exception as error:
            words = " ".join(str(error).split())
            print(f"\n{type(error).__name__}: {words}", file=sys.stderr, flush=True)
            os._exit(1)


def last_words(text: str) -> str:
    """Return the last line of what a process has said that is not empty."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"


def main() -> None:
    """Export what is asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=Path, required=True)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    parser.add_argument("--only", default="")
    parser.add_argument("--subset", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=90.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    declare_operators_of_torchvision()
    families = [[(family, name) for name, *_ in FAMILIES[family]()] for family in given.families.split(",")]
    chance = random.Random(0)
    for cases in families:
        chance.shuffle(cases)
    in_turn = [case for row in itertools.zip_longest(*families) for case in row if case is not None]
    first = [(family, name, chance.choice(EXPORTERS)) for family, name in in_turn if given.only in name]
    wanted = [*first, *((f, name, EXPORTERS[1 - EXPORTERS.index(how)]) for f, name, how in first)]
    with tempfile.TemporaryDirectory() as warm:  # what the exporters import is then there in every process
        for exporter in EXPORTERS:
            export("layers", "autoencoder", exporter, Path(warm))
    wanted = [case for case in wanted if case[2] in given.exporters.split(",")]
    for family, name, exporter in wanted[: given.subset or None]:
        folder = given.networks / f"{family}.{name}.{exporter}"
        if folder.exists():
            continue
        part = given.networks / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        process = multiprocessing.get_context("fork").Process(
            target=export_quietly, args=(family, name, exporter, part)
        )
        process.start()
        process.join(given.seconds)
        process.kill()
        process.join()
        said = part / "said.txt"
        why = ""
        if not (part / "model.onnx").exists():
            why = (
                last_words(said.read_text(encoding="utf-8"))
                if process.exitcode == 1
                else "not in time, or killed"
            )
        said.unlink(missing_ok=True)
        if why:
            shutil.rmtree(part)
            part.mkdir()
            (part / "refused.txt").write_text(why, encoding="utf-8")
        os.replace(part, folder)
        print(folder.name, why or "written", flush=True)


if __name__ == "__main__":
    main()
