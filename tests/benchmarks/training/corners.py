"""Trains `models/corners.py`: a small VGG, a head of 65 logits and one of descriptors of unit length."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from fitting import convolution
from models import corners as record
from torch import nn

BATCH, STEPS, POOL, CUT = 16, 700, 2000, (64, 80)
WIDTHS, DESCRIPTOR = (24, 32, 64, 96), 64


def layer(inside: int, outside: int) -> list[nn.Module]:
    return [*convolution(inside, outside, 3), nn.ReLU()]


class Net(nn.Module):
    def __init__(self, cell: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        entering = 1
        for place, width in enumerate(WIDTHS):
            parts += [nn.MaxPool2d(2)] if place else []
            parts += [*layer(entering, width), *layer(width, width)]
            entering = width
        self.body = nn.Sequential(*parts)
        self.corner = nn.Sequential(*layer(entering, 128), nn.Conv2d(128, cell * cell + 1, 1))
        self.descriptor = nn.Sequential(*layer(entering, 128), nn.Conv2d(128, DESCRIPTOR, 1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.body(image)
        descriptors = self.descriptor(x)
        return self.corner(x), descriptors / torch.linalg.vector_norm(descriptors, dim=1, keepdim=True)


def main() -> None:
    made = list(record.pictures(np.random.default_rng(0), POOL))
    images = np.stack([image for image, _ in made])[:, None]
    cells = np.full((POOL, record.HEIGHT // record.CELL, record.WIDTH // record.CELL), record.CELL**2)
    for index, (_, found) in enumerate(made):
        for x, y in found.astype(int):
            inside = (y % record.CELL) * record.CELL + x % record.CELL
            cells[index, y // record.CELL, x // record.CELL] = inside
    net = Net(record.CELL)

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        # Pieces of the pictures, at whole cells: the net is convolutional.
        chosen, rows, columns = rng.integers((POOL, 8, 11), size=(BATCH, 3)).T
        pieces, truth = [], []
        for index, row, column in zip(chosen, rows, columns, strict=True):
            high, wide = CUT[0] // record.CELL, CUT[1] // record.CELL
            truth.append(cells[index, row : row + high, column : column + wide])
            top, left = row * record.CELL, column * record.CELL
            pieces.append(images[index, :, top : top + CUT[0], left : left + CUT[1]])
        sharp = np.stack(pieces).astype(np.float32) / 255
        gain = rng.uniform(0.6, 1.3, (BATCH, 1, 1, 1))
        other = sharp * gain + rng.normal(0, 0.03, sharp.shape) + rng.uniform(-0.1, 0.1, gain.shape)
        return fitting.tensors(sharp, np.clip(other, 0, 1).astype(np.float32), np.stack(truth))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        (logits, one), truth = net(parts[0]), parts[2]
        found = nn.functional.cross_entropy(logits, truth)
        # Another light on the same picture: its descriptors are those of the same cells.
        other = net(parts[1][:2])[1].flatten(2)
        alike = torch.einsum("bci,bcj->bij", one[:2].flatten(2), other) / 0.1
        same = torch.arange(alike.shape[1]).expand(len(alike), -1)
        return found + 0.05 * nn.functional.cross_entropy(alike, same)

    fitting.fit(net, batch, loss, STEPS, rate=4e-3)
    example = torch.from_numpy(images[:1].astype(np.float32) / 255)
    fitting.export("corners", net, (example,), ["image"], ["logits", "descriptors"])


if __name__ == "__main__":
    fitting.start()
    main()
