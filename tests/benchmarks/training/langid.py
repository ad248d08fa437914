"""Trains `models/langid.py`: convolution over bytes, then a transformer encoder with pre-normalization."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import langid
from torch import nn

WIDTH, HEADS, LAYERS, BATCH, STEPS = 96, 4, 3, 64, 1300


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        parts = self.mixed(self.before(x)).reshape(-1, size, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        shares = torch.softmax(parts[0] @ parts[1].transpose(2, 3) / (WIDTH // HEADS) ** 0.5 + bias, dim=-1)
        x = x + self.joined((shares @ parts[2]).transpose(1, 2).reshape(-1, size, WIDTH))
        return x + self.inner(self.between(x))


class Net(nn.Module):
    def __init__(self, languages: int, length: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(256, WIDTH)
        self.stem = nn.Conv1d(WIDTH, WIDTH, 5, padding=2)
        self.places = nn.Parameter(torch.randn(length, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, languages)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        mask = (letters != 0).float()
        x = self.letters(letters) * mask[:, :, None]
        x = x + nn.functional.gelu(self.stem(x.transpose(1, 2))).transpose(1, 2) + self.places
        bias = (1.0 - mask)[:, None, None, :] * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        x = self.last(x) * mask[:, :, None]
        return self.head(x.sum(1) / mask.sum(1, keepdim=True))


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        rows, places = zip(*langid.samples(rng, "training", BATCH), strict=True)
        return fitting.tensors(np.stack(rows), np.array(places))

    net = Net(len(langid.LANGUAGES), langid.LENGTH)

    def loss(given: fitting.Tensors) -> torch.Tensor:
        return nn.functional.cross_entropy(net(given[0]), given[1], label_smoothing=0.05)

    fitting.fit(net, batch, loss, STEPS)
    example = batch(np.random.default_rng(2))[:1]
    fitting.export("langid", net, example, ["bytes"], ["logits"], dynamic={"bytes": {0: "batch"}})


if __name__ == "__main__":
    fitting.start()
    main()
