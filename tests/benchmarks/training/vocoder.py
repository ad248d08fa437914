"""Trains `models/vocoder.py`: transposed convolutions, residual blocks with LeakyRelu, a Tanh; no GAN."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import vocoder as record
from torch import nn

WIDTH, RATIOS, KERNELS, DILATIONS, SLOPE = 128, (8, 4, 4), (3, 7), (1, 3), 0.1
FRAMES, BATCH, STEPS, MOST = 48, 8, 700, 400
WINDOWS = (256, 512, 1024)


class Blocks(nn.Module):
    """The mean of residual blocks with kernels of several sizes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Conv1d(width, width, kernel, padding=(kernel - 1) * dilation // 2, dilation=dilation)
                for dilation in DILATIONS
            )
            for kernel in KERNELS
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = None
        for block in self.blocks:
            y = x
            for layer in block:
                y = y + layer(nn.functional.leaky_relu(y, SLOPE))
            total = y if total is None else total + y
        return total / len(KERNELS)


class Net(nn.Module):
    def __init__(self, bands: int) -> None:
        super().__init__()
        widths = [WIDTH // 2**k for k in range(len(RATIOS) + 1)]
        self.first = nn.Conv1d(bands, WIDTH, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(widths[k], widths[k + 1], 2 * ratio, ratio, padding=ratio // 2)
            for k, ratio in enumerate(RATIOS)
        )
        self.blocks = nn.ModuleList(Blocks(width) for width in widths[1:])
        self.last = nn.Conv1d(widths[-1], 1, 7, padding=3)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.first(mel)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = blocks(up(nn.functional.leaky_relu(x, SLOPE)))
        return torch.tanh(self.last(nn.functional.leaky_relu(x, SLOPE)))


def distance(told: torch.Tensor, truth: torch.Tensor, size: int, filters: torch.Tensor) -> torch.Tensor:
    """Distance of spectra of one window: of the magnitudes and of their logarithms, and of the mel bands'."""
    window = torch.hann_window(size)
    one, other = (
        torch.stft(sound, size, size // 4, window=window, return_complex=True).abs()
        for sound in (told, truth)
    )
    logs = ((one.pow(2) + 1e-5).log() - (other.pow(2) + 1e-5).log()).abs().mean()
    value = logs + (one - other).norm() / other.norm()
    if size == 2 * (filters.shape[1] - 1):
        bands = [(filters @ part.pow(2) + 1e-6).log() for part in (one, other)]
        value = value + 2 * (bands[0] - bands[1]).abs().mean()
    return value


def main() -> None:
    net, filters = Net(record.BANDS), torch.from_numpy(record.filters().astype(np.float32))

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        made = np.stack(list(record.pieces(rng, "training", MOST, BATCH, FRAMES)))
        spectra = np.stack([record.fed(record.decibels(piece)) for piece in made])
        return fitting.tensors(spectra, made.astype(np.float32))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        told = net(parts[0])[:, 0]
        return sum(distance(told, parts[1], size, filters) for size in WINDOWS)

    fitting.fit(net, batch, loss, STEPS, rate=2e-3)
    example = torch.zeros(1, record.BANDS, record.FRAMES)
    fitting.export("vocoder", net, (example,), ["mel"], ["sound"], dynamic={"mel": {2: "frames"}})


if __name__ == "__main__":
    fitting.start()
    main()
