"""Trains `models/recommender.py`: tables of embeddings, products of all pairs of them, two MLPs."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import recommender as record
from torch import nn

WIDTH, BATCH, STEPS, POOL = 32, 64, 1500, 6000


class Net(nn.Module):
    def __init__(self, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        things, kinds, makers = sizes
        self.thing = nn.Embedding(things + 1, WIDTH)
        self.kind, self.maker = nn.Embedding(kinds, WIDTH), nn.Embedding(makers, WIDTH)
        for table in (self.thing, self.kind, self.maker):
            nn.init.normal_(table.weight, std=0.1)
        self.bottom = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
        first, second = torch.triu_indices(5, 5, 1)
        self.register_buffer("pairs", first * 5 + second)
        self.top = nn.Sequential(
            *(nn.Linear(WIDTH + 10, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()), nn.Linear(64, 1)
        )

    def forward(self, *feed: torch.Tensor) -> torch.Tensor:
        """Return the chance of each thing; the inputs are those of `visits`, in their order."""
        seen, thing, kind, maker, figures, user = feed
        there = (seen > 0).float()[:, :, None]
        history = (self.thing(seen) * there).sum(1) / there.sum(1).clamp(min=1.0)
        offered = thing.shape[1]
        dense = torch.cat([figures, user[:, None].expand(-1, offered, -1)], dim=2)
        dense = self.bottom(dense)
        parts = [dense, history[:, None].expand(-1, offered, -1), self.thing(thing), self.kind(kind)]
        joined = torch.stack([*parts, self.maker(maker)], dim=2)
        products = (joined @ joined.transpose(2, 3)).flatten(2)[:, :, self.pairs]
        return torch.sigmoid(self.top(torch.cat([dense, products], dim=2))[:, :, 0])


def main() -> None:
    made = list(record.visits(np.random.default_rng(0), POOL))
    names = tuple(made[0][0])
    feeds = {name: np.stack([feed[name] for feed, _ in made]) for name in names}
    taken = np.stack([each for _, each in made]).astype(np.float32)
    net = Net((record.THINGS, record.KINDS, record.MAKERS))

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        return fitting.tensors(*(feeds[name][chosen] for name in names), taken[chosen])

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        return nn.functional.binary_cross_entropy(net(*parts[:-1]).clamp(1e-6, 1 - 1e-6), parts[-1])

    fitting.fit(net, batch, loss, STEPS, rate=4e-3)
    example = fitting.tensors(*(feeds[name][:1] for name in names))
    fitting.export("recommender", net, example, names, ["chances"])


if __name__ == "__main__":
    fitting.start()
    main()
