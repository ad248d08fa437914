"""Trains `models/counter.py`: a small VGG, dilated convolutions, a map of densities and its sum."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import counter as record
from torch import nn

BATCH, STEPS, POOL, SCALE = 10, 600, 2000, 20.0


def layer(inside: int, outside: int, dilation: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inside, outside, 3, padding=dilation, dilation=dilation, bias=False)
    return [convolution, nn.BatchNorm2d(outside), nn.ReLU()]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            *(*layer(1, 16), *layer(16, 24), nn.MaxPool2d(2)),
            *(*layer(24, 40), *layer(40, 40), nn.MaxPool2d(2)),
            *(*layer(40, 64), *layer(64, 64, 2), *layer(64, 48, 2), *layer(48, 32, 2)),
            nn.Conv2d(32, 1, 1),
        )

    def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        density = torch.relu(self.parts(picture)) / SCALE
        return density, density.sum((1, 2, 3))


def main() -> None:
    made = list(record.pictures(np.random.default_rng(0), POOL))
    pictures = np.stack([picture for picture, _ in made])[:, None]
    maps = np.stack([record.density(middles) for _, middles in made])[:, None].astype(np.float32)
    net = Net()

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        turned = [slice(None, None, step) for step in rng.choice([-1, 1], 2)]
        x, y = (np.ascontiguousarray(part[chosen][..., turned[0], turned[1]]) for part in (pictures, maps))
        return fitting.tensors(x.astype(np.float32) / 255, y)

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        density, count = net(parts[0])
        wanted = parts[1].sum((1, 2, 3))
        near = (SCALE * (density - parts[1])).pow(2).mean()
        return near + 0.3 * ((count - wanted).abs() / (wanted + 5)).mean()

    fitting.fit(net, batch, loss, STEPS, rate=4e-3)
    example = torch.from_numpy(pictures[:1].astype(np.float32) / 255)
    fitting.export("counter", net, (example,), ["picture"], ["density", "count"])


if __name__ == "__main__":
    fitting.start()
    main()
