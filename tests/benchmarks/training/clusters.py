"""Trains `models/clusters.py`: distances as Gaussians, filters, shifted softplus, a sum over atoms."""

from __future__ import annotations

import math

import fitting
import numpy as np
import torch
from models import clusters as record
from torch import nn

WIDTH, LAYERS, GAUSSIANS, BATCH, STEPS, POOL, SIZES = 64, 3, 25, 40, 1500, 700, range(8, 21, 2)


class Softplus(nn.Module):
    """ln(0.5 e^x + 0.5), as SchNet has it (Schuett et al., 2017)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(x) - math.log(2.0)


class Interaction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(GAUSSIANS, WIDTH), Softplus(), nn.Linear(WIDTH, WIDTH))
        self.entry = nn.Linear(WIDTH, WIDTH, bias=False)
        self.leave = nn.Sequential(nn.Linear(WIDTH, WIDTH), Softplus(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, near: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
        filters = self.filter(near) * reach[..., None]
        return x + self.leave((self.entry(x)[:, None] * filters).sum(2))


class Net(nn.Module):
    def __init__(self, kinds: int, reach: float) -> None:
        super().__init__()
        self.reach = reach
        self.register_buffer("centres", torch.linspace(0.8, reach, GAUSSIANS))
        self.kind = nn.Embedding(kinds, WIDTH)
        self.layers = nn.ModuleList(Interaction() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(WIDTH, 32), Softplus(), nn.Linear(32, 1))
        self.base = nn.Embedding(kinds, 1)

    def forward(self, kinds: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        apart = places[:, :, None] - places[:, None]
        far = torch.sqrt((apart**2).sum(3) + 1e-8)
        others = 1.0 - torch.eye(places.shape[1])
        smooth = 0.5 * (torch.cos(math.pi * far.clamp(max=self.reach) / self.reach) + 1.0) * others
        near = torch.exp(-(((far[..., None] - self.centres) / 0.2) ** 2) / 2)
        x = self.kind(kinds)
        for layer in self.layers:
            x = layer(x, near, smooth)
        return (self.head(x) + self.base(kinds)).sum((1, 2))


def main() -> None:
    rng = np.random.default_rng(0)
    pools = []
    for size in SIZES:  # the clusters of a batch have as many atoms
        pools.append(fitting.columns(record.clusters(rng, POOL, size)))
    net = Net(record.KINDS, record.REACH)
    mean = float(np.mean(pools[0][2]) / SIZES[0])
    nn.init.constant_(net.base.weight, mean)

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        kinds, places, energies = pools[rng.integers(len(pools))]
        chosen = rng.integers(POOL, size=BATCH)
        return fitting.tensors(kinds[chosen], places[chosen], energies[chosen].astype(np.float32))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        return (net(*parts[:2]) - parts[2]).abs().mean() / parts[0].shape[1] ** 0.5

    fitting.fit(net, batch, loss, STEPS, rate=3e-3)
    kinds, places, _ = pools[1]
    dynamic = {"kinds": {1: "atoms"}, "places": {1: "atoms"}}
    example = fitting.tensors(kinds[:1], places[:1])
    fitting.export("clusters", net, example, ["kinds", "places"], ["energy"], dynamic=dynamic)


if __name__ == "__main__":
    fitting.start()
    main()
