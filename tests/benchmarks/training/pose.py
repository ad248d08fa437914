"""Trains `models/pose.py`: inverted residuals with SiLU, transposed convolutions, a soft ArgMax of maps."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from fitting import convolution
from models import pose as record
from torch import nn

BATCH, STEPS, POOL, CELLS, BLUR = 20, 900, 6000, 24, 1.0
# Width, stride and whether the input is added, of each inverted residual; the first reads 16 channels.
BLOCKS = ((24, 2), (24, 1), (48, 2), (48, 1), (48, 1), (80, 2), (80, 1))


class Inverted(nn.Module):
    """MobileNetV2's block, with SiLU."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.added, wide = stride == 1 and inside == outside, 3 * inside
        parts = [
            *convolution(inside, wide, 1),
            nn.SiLU(),
            *convolution(wide, wide, 3, stride, wide),
            nn.SiLU(),
        ]
        self.parts = nn.Sequential(*parts, *convolution(wide, outside, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.parts(x) if self.added else self.parts(x)


class Net(nn.Module):
    def __init__(self, joints: int, side: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*convolution(3, 16, 3, 2), nn.SiLU())
        widths = [16, *(width for width, _ in BLOCKS)]
        self.blocks = nn.ModuleList(
            Inverted(inside, *block) for inside, block in zip(widths[:-1], BLOCKS, strict=True)
        )
        self.up1 = nn.Sequential(nn.ConvTranspose2d(80, 48, 4, 2, 1, bias=False), nn.BatchNorm2d(48))
        self.up2 = nn.Sequential(nn.ConvTranspose2d(48, 24, 4, 2, 1, bias=False), nn.BatchNorm2d(24))
        self.mixed = nn.Sequential(*convolution(24, 32, 3), nn.SiLU())
        self.head = nn.Conv2d(32, joints, 1)
        self.register_buffer("places", (torch.arange(CELLS) + 0.5) * (side / CELLS))

    def maps(self, picture: torch.Tensor) -> torch.Tensor:
        """Return the logits of each joint's cell, (batch, joints, CELLS, CELLS)."""
        x, kept = self.stem(picture * 2 - 1), []
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number in {1, 4}:
                kept.append(x)
        x = nn.functional.silu(self.up1(x) + kept[1])
        x = nn.functional.silu(self.up2(x) + kept[0])
        return self.head(self.mixed(x))

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.located(self.maps(picture))

    def located(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the mean place of each map's Softmax, in pixels (Sun et al., 2018)."""
        shares = torch.softmax(maps.flatten(2), dim=2).reshape(maps.shape)
        x, y = shares.sum(2) @ self.places, shares.sum(3) @ self.places
        return torch.stack([x, y], dim=2)


def main() -> None:
    pictures, joints = fitting.columns(record.figures(np.random.default_rng(0), POOL))
    joints = joints.astype(np.float32)
    net = Net(record.JOINTS, record.SIDE)
    cell = record.SIDE / CELLS

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        return fitting.tensors(pictures[chosen].astype(np.float32) / 255, joints[chosen])

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        maps, truth = net.maps(parts[0]), parts[1]
        near = torch.exp(-((truth[..., None] - net.places) ** 2) / (2 * (BLUR * cell) ** 2))
        wanted = near[:, :, 1, :, None] * near[:, :, 0, None, :]
        wanted = (wanted / wanted.sum((2, 3), keepdim=True)).flatten(2)
        crossed = -(wanted * torch.log_softmax(maps.flatten(2), dim=2)).sum(2).mean()
        return crossed + 0.3 * (net.located(maps) - truth).abs().mean()

    fitting.fit(net, batch, loss, STEPS, rate=5e-3)
    example = torch.from_numpy(pictures[:1].astype(np.float32) / 255)
    fitting.export("pose", net, (example,), ["picture"], ["joints"])


if __name__ == "__main__":
    fitting.start()
    main()
