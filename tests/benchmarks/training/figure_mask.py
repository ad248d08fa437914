"""Trains `models/figure_mask.py`: MobileNetV3's blocks in small, the LR-ASPP head, bilinear enlargement."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from fitting import convolution
from models import figure_mask as record
from torch import nn

BATCH, STEPS, POOL = 12, 600, 2500
# Kernel, width inside, width leaving, squeeze and excitation, HardSwish, stride.
BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 56, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 160, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
)


class Gate(nn.Module):
    """Squeeze and excitation with HardSigmoid (Howard et al., 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        narrow = max(8, width // 4)
        self.parts = nn.Sequential(nn.Conv2d(width, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * nn.functional.hardsigmoid(self.parts(x.mean((2, 3), keepdim=True)))


class Inverted(nn.Module):
    def __init__(self, inside: int, block: tuple[int, int, int, bool, bool, int]) -> None:
        super().__init__()
        kernel, wide, outside, gate, hard, stride = block
        self.added = stride == 1 and inside == outside
        act = nn.Hardswish if hard else nn.ReLU
        parts = [*convolution(inside, wide, 1), act(), *convolution(wide, wide, kernel, stride, wide), act()]
        self.parts = nn.Sequential(*parts, *([Gate(wide)] if gate else []), *convolution(wide, outside, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.parts(x) if self.added else self.parts(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*convolution(3, 16, 3, 2), nn.Hardswish())
        widths = [16, *(block[2] for block in BLOCKS)]
        pairs = zip(widths[:-1], BLOCKS, strict=True)
        self.blocks = nn.ModuleList(Inverted(inside, block) for inside, block in pairs)
        self.last = nn.Sequential(*convolution(48, 192, 1), nn.Hardswish())
        self.deep = nn.Sequential(*convolution(192, 64, 1), nn.ReLU())
        self.scale = nn.Sequential(nn.Conv2d(192, 64, 1, bias=False), nn.Sigmoid())
        self.low, self.high = nn.Conv2d(24, 1, 1), nn.Conv2d(64, 1, 1)
        self.fine = nn.Conv2d(16, 1, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.logits(picture))

    def logits(self, picture: torch.Tensor) -> torch.Tensor:
        first = x = self.stem(picture * 2 - 1)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == 2:
                low = x
        x = self.last(x)
        x = self.deep(x) * self.scale(x.mean((2, 3), keepdim=True))

        def twice(y: torch.Tensor, times: int) -> torch.Tensor:
            return nn.functional.interpolate(y, scale_factor=times, mode="bilinear", align_corners=False)

        y = twice(self.high(x), 2) + self.low(low)
        y = twice(y, 4) + self.fine(first)
        return twice(y, 2)


def main() -> None:
    pictures, masks = fitting.columns(record.figures(np.random.default_rng(0), POOL))
    net = Net()

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        truth = masks[chosen].astype(np.float32)
        return fitting.tensors(pictures[chosen].astype(np.float32) / 255, truth[:, None])

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        logits, truth = net.logits(parts[0]), parts[1]
        shares = torch.sigmoid(logits)
        shared = 2 * (shares * truth).sum((1, 2, 3)) / (shares + truth).sum((1, 2, 3))
        return nn.functional.binary_cross_entropy_with_logits(logits, truth) + 0.5 * (1 - shared).mean()

    fitting.fit(net, batch, loss, STEPS, rate=6e-3)
    example = torch.from_numpy(pictures[:1].astype(np.float32) / 255)
    fitting.export("figure_mask", net, (example,), ["picture"], ["mask"])


if __name__ == "__main__":
    fitting.start()
    main()
