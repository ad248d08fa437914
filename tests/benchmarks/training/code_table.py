"""Trains `models/code_table.py`: embeddings beside numbers, a residual net (Gorishniy et al., 2021)."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import code_table as data
from torch import nn

EMBEDDED, WIDTH, INNER, BLOCKS, BATCH, STEPS = 16, 256, 512, 4, 256, 800


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.dropped = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(self.dropped(torch.relu(self.inner(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, numbers: int, names: int, buckets: int, packages: int) -> None:
        super().__init__()
        self.scaled = nn.BatchNorm1d(numbers)
        self.tables = nn.ModuleList(nn.Embedding(buckets, EMBEDDED) for _ in range(names))
        self.entry = nn.Linear(numbers + names * EMBEDDED, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, packages))

    def forward(self, numbers: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
        embedded = [table(names[:, place]) for place, table in enumerate(self.tables)]
        x = torch.cat([self.scaled(numbers), *embedded], dim=1)
        return self.head(self.blocks(self.entry(x)))


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        return fitting.tensors(*data.samples(rng, "training", BATCH))

    numbers, names, _ = batch(np.random.default_rng(2))
    net = Net(numbers.shape[1], names.shape[1], data.BUCKETS, len(data.PACKAGES))
    fitting.fit(net, batch, lambda b: nn.functional.cross_entropy(net(*b[:2]), b[2]), STEPS)
    examples = numbers[: data.BATCH], names[: data.BATCH]
    fitting.export("code_table", net, examples, ["numbers", "names"], ["logits"])


if __name__ == "__main__":
    fitting.start()
    main()
