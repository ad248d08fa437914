"""Trains `models/forecast.py`: N-BEATS, generic, doubly residual (Oreshkin et al., 2020)."""

from __future__ import annotations

import itertools

import fitting
import numpy as np
import torch
from models import forecast
from torch import nn

WIDTH, BLOCKS, BATCH, STEPS = 256, 9, 64, 1800


class Block(nn.Module):
    def __init__(self, window: int, horizon: int) -> None:
        super().__init__()
        sizes = [window, *[WIDTH] * 4]
        parts = [
            part
            for entering, leaving in itertools.pairwise(sizes)
            for part in (nn.Linear(entering, leaving), nn.ReLU())
        ]
        self.body = nn.Sequential(*parts)
        self.back, self.ahead = nn.Linear(WIDTH, window), nn.Linear(WIDTH, horizon)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.body(x)
        return self.back(inner), self.ahead(inner)


class Net(nn.Module):
    def __init__(self, window: int, horizon: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(window, horizon) for _ in range(BLOCKS))

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        level = past.abs().mean(dim=1, keepdim=True) + 1e-6
        rest, total = past / level, 0.0
        for block in self.blocks:
            explained, ahead = block(rest)
            rest, total = rest - explained, total + ahead
        return total * level


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        return fitting.tensors(forecast.series(rng, BATCH))

    def loss(given: fitting.Tensors) -> torch.Tensor:
        past, ahead = given[0][:, : forecast.WINDOW], given[0][:, forecast.WINDOW :]
        return ((net(past) - ahead).abs() / (past.abs().mean(dim=1, keepdim=True) + 1e-6)).mean()

    net = Net(forecast.WINDOW, forecast.HORIZON)
    fitting.fit(net, batch, loss, STEPS, 1e-3)
    (rows,) = batch(np.random.default_rng(2))
    example = (rows[: forecast.BATCH, : forecast.WINDOW],)
    fitting.export("forecast", net, example, ["past"], ["ahead"])


if __name__ == "__main__":
    fitting.start()
    main()
