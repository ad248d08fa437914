"""Trains `models/texture_faults.py`: a denoising autoencoder whose error is a part of the graph."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import texture_faults as data
from torch import nn

WIDTHS, LATENT, BATCH, STEPS = (24, 48, 64), 12, 24, 700


def layer(kind: type[nn.Module], entering: int, leaving: int) -> list[nn.Module]:
    return [kind(entering, leaving, 4, stride=2, padding=1), nn.BatchNorm2d(leaving), nn.LeakyReLU(0.2)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.encoder = nn.Sequential(
            *layer(nn.Conv2d, 1, first),
            *layer(nn.Conv2d, first, second),
            *layer(nn.Conv2d, second, third),
            nn.Conv2d(third, LATENT, 3, padding=1),
        )
        self.decoder = nn.Sequential(
            *layer(nn.ConvTranspose2d, LATENT, third),
            *layer(nn.ConvTranspose2d, third, second),
            *layer(nn.ConvTranspose2d, second, first),
            nn.Conv2d(first, 1, 3, padding=1),
            nn.Sigmoid(),
        )
        self.around = nn.AvgPool2d(9, stride=2)

    def forward(self, pieces: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.decoder(self.encoder(pieces))
        return made, self.around((pieces - made) ** 2).amax(dim=(1, 2, 3))


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        """Return pieces with parts painted over, and as they were."""
        pieces = data.good(rng, "training", BATCH)
        spoilt = pieces.copy()
        for piece in spoilt:
            top, left = rng.integers(0, data.SIDE - 8, 2)
            high, wide = rng.integers(2, 16, 2)
            piece[0, top : top + high, left : left + wide] += rng.uniform(-0.5, 0.5)
        noise = rng.normal(0, 0.03, spoilt.shape)
        return fitting.tensors(np.clip(spoilt + noise, 0, 1).astype(np.float32), pieces)

    net = Net()
    fitting.fit(net, batch, lambda b: (net(b[0])[0] - b[1]).pow(2).mean() * 100, STEPS)
    example = fitting.tensors(data.good(np.random.default_rng(2), "training", 2 * data.PAIRS))
    fitting.export("texture_faults", net, example, ["pieces"], ["reconstruction", "difference"])


if __name__ == "__main__":
    fitting.start()
    main()
