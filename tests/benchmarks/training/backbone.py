"""Trains `models/backbone.py`: nearest neighbours, distances as Gaussians, messages on edges, LogSoftmax."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import backbone as record
from torch import nn

WIDTH, LAYERS, NEAREST, GAUSSIANS, BATCH, STEPS, SIZE, POOL = 64, 3, 16, 16, 8, 900, 64, 2500
ORDER = 16  # steps of the chain that an edge tells apart, on either side


def gathered(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return rows of x (batch, nodes, width) at places (batch, nodes, nearest)."""
    batch, nodes, nearest = places.shape
    flat = places.reshape(batch, nodes * nearest, 1).expand(-1, -1, x.shape[2])
    return x.gather(1, flat).reshape(batch, nodes, nearest, x.shape[2])


class Layer(nn.Module):
    """A step of the encoder of ProteinMPNN (Dauparas et al., 2022): nodes, then edges."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(
            *(nn.Linear(3 * WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()),
            nn.Linear(WIDTH, WIDTH),
        )
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.renew = nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def joined(self, nodes: torch.Tensor, edges: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        own = nodes[:, :, None].expand(-1, -1, near.shape[2], -1)
        return torch.cat([own, gathered(nodes, near), edges], dim=3)

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, near: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        nodes = self.norms[0](nodes + self.message(self.joined(nodes, edges, near)).mean(2))
        nodes = self.norms[1](nodes + self.wide(nodes))
        return nodes, self.norms[2](edges + self.renew(self.joined(nodes, edges, near)))


class Net(nn.Module):
    def __init__(self, residues: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(2.0, 22.0, GAUSSIANS))
        self.order = nn.Embedding(2 * ORDER + 1, 16)
        self.edge = nn.Sequential(nn.Linear(GAUSSIANS + 16 + 4, WIDTH), nn.LayerNorm(WIDTH))
        self.start = nn.Linear(GAUSSIANS * 4, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, residues)

    def gaussians(self, far: torch.Tensor) -> torch.Tensor:
        return torch.exp(-(((far[..., None] - self.centres) / 1.3) ** 2))

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        apart = places[:, :, None] - places[:, None]
        far = torch.sqrt((apart**2).sum(3) + 1e-6)
        distance, near = torch.topk(far, NEAREST, dim=2, largest=False)
        chain = torch.arange(places.shape[1])
        steps = (near - chain[None, :, None]).clamp(-ORDER, ORDER) + ORDER
        ahead = torch.cat([places[:, 1:], places[:, -1:]], dim=1) - places
        behind = places - torch.cat([places[:, :1], places[:, :-1]], dim=1)
        toward = gathered(places, near) - places[:, :, None]
        toward = toward / torch.sqrt((toward**2).sum(3, keepdim=True) + 1e-3)
        angles = [(toward * v[:, :, None]).sum(3) / 3.8 for v in (ahead, behind)]
        angles += [(gathered(v, near) * v[:, :, None]).sum(3) / 14.4 for v in (ahead, behind)]
        known = [self.gaussians(distance), self.order(steps), torch.stack(angles, dim=3)]
        edges = self.edge(torch.cat(known, dim=3))
        ends = nn.functional.pad(places.transpose(1, 2), (3, 3), mode="replicate").transpose(1, 2)
        size = places.shape[1]
        spans = [ends[:, 3 + k : 3 + k + size] - places for k in (-3, -2, 2, 3)]
        nodes = self.start(
            torch.cat([self.gaussians(torch.sqrt((s**2).sum(2) + 1e-6)) for s in spans], dim=2)
        )
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, near)
        return torch.log_softmax(self.head(nodes), dim=2)


def main() -> None:
    places, residues = fitting.columns(record.chains(np.random.default_rng(0), POOL, SIZE))
    net = Net(record.RESIDUES)

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        shaken = places[chosen] + rng.normal(0, 0.05, (BATCH, SIZE, 3)).astype(np.float32)
        return fitting.tensors(shaken, residues[chosen])

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        return nn.functional.nll_loss(net(parts[0]).flatten(0, 1), parts[1].flatten())

    fitting.fit(net, batch, loss, STEPS, rate=2e-3)
    example = fitting.tensors(places[:1])
    dynamic = {"places": {1: "residues"}}
    fitting.export("backbone", net, example, ["places"], ["log_probabilities"], dynamic=dynamic)


if __name__ == "__main__":
    fitting.start()
    main()
