"""Trains `models/maze_plan.py`: rewards of a map, values by one convolution again and again, a policy."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import maze_plan as record
from torch import nn

WIDTH, ACTIONS, ROUNDS, BATCH, STEPS, POOL = 64, 12, 36, 32, 900, 4000


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reward = nn.Sequential(nn.Conv2d(2, WIDTH, 3, padding=1), nn.ReLU(), nn.Conv2d(WIDTH, 1, 1))
        self.action = nn.Conv2d(2, ACTIONS, 3, padding=1, bias=False)
        self.policy = nn.Sequential(nn.Conv2d(ACTIONS, 48, 1), nn.ReLU(), nn.Conv2d(48, 8, 1))

    def forward(self, map: torch.Tensor) -> torch.Tensor:
        reward = self.reward(map)
        value = torch.zeros_like(reward)
        for _ in range(ROUNDS):
            worth = self.action(torch.cat([reward, value], dim=1))
            value = worth.max(dim=1, keepdim=True).values
        return self.policy(self.action(torch.cat([reward, value], dim=1)))


def main() -> None:
    maps, best = fitting.columns(record.maps(np.random.default_rng(0), POOL))
    net = Net()

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        return fitting.tensors(maps[chosen], best[chosen].astype(np.float32))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        shares, truth = torch.softmax(net(parts[0]), dim=1), parts[1]
        told = truth.amax(dim=1)
        right = (shares * truth).sum(1).clamp(min=1e-6)
        return -(torch.log(right) * told).sum() / told.sum()

    fitting.fit(net, batch, loss, STEPS, rate=5e-3)
    example = fitting.tensors(maps[:1])
    fitting.export("maze_plan", net, example, ["map"], ["directions"])


if __name__ == "__main__":
    fitting.start()
    main()
