"""Trains `models/matcher.py`: self and cross attention with rotary places, a doubly normalised assignment."""

from __future__ import annotations

import math

import fitting
import numpy as np
import torch
from models import matcher as record
from torch import nn

WIDTH, HEADS, LAYERS, BATCH, STEPS, POINTS = 64, 4, 3, 12, 1300, 48
Pair = tuple[torch.Tensor, torch.Tensor]


def rotated(x: torch.Tensor, places: Pair) -> torch.Tensor:
    """Turn pairs of features by angles that their point's place gives (Su et al., 2021)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([-odd, even], dim=-1).flatten(-2)
    return x * places[0] + turned * places[1]


class Block(nn.Module):
    """Attention to the same view, or to the other; then an MLP that reads both, as LightGlue does."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        wide = 2 * WIDTH
        self.mixed = nn.Sequential(
            nn.Linear(wide, wide), nn.LayerNorm(wide), nn.GELU(), nn.Linear(wide, WIDTH)
        )

    def forward(self, x: torch.Tensor, source: torch.Tensor, places: Pair | None) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(source)), split(self.value(source))
        if places is not None:
            query, key = rotated(query, places), rotated(key, places)
        shares = torch.softmax(query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS), dim=3)
        message = self.out((shares @ value).transpose(1, 2).flatten(2))
        return x + self.mixed(torch.cat([x, message], dim=2))


class Net(nn.Module):
    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.entry = nn.Linear(descriptor, WIDTH)
        self.angles = nn.Linear(2, WIDTH // HEADS // 2, bias=False)
        self.own, self.other = (nn.ModuleList(Block() for _ in range(LAYERS)) for _ in range(2))
        self.final, self.matchable = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def places(self, points: torch.Tensor) -> Pair:
        angles = self.angles(points).repeat_interleave(2, dim=2)[:, None]
        return torch.cos(angles), torch.sin(angles)

    def forward(
        self, points0: torch.Tensor, looks0: torch.Tensor, points1: torch.Tensor, looks1: torch.Tensor
    ) -> torch.Tensor:
        x, y = self.entry(looks0), self.entry(looks1)
        first, second = self.places(points0), self.places(points1)
        for own, other in zip(self.own, self.other, strict=True):
            x, y = own(x, x, first), own(y, y, second)
            x, y = other(x, y, None), other(y, x, None)
        alike = self.final(x) @ self.final(y).transpose(1, 2) / WIDTH**0.5
        one, two = self.matchable(x), self.matchable(y)
        sure = nn.functional.logsigmoid(one) + nn.functional.logsigmoid(two).transpose(1, 2)
        inner = torch.log_softmax(alike, 2) + torch.log_softmax(alike, 1) + sure
        nobody = nn.functional.logsigmoid(-one), nn.functional.logsigmoid(-two).transpose(1, 2)
        bottom = torch.cat([nobody[1], torch.zeros_like(nobody[1][:, :, :1])], dim=2)
        return torch.cat([torch.cat([inner, nobody[0]], dim=2), bottom], dim=1)


def main() -> None:
    net = Net(record.WIDTH)

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        views = (record.views(rng, (POINTS, POINTS)) for _ in range(BATCH))
        return fitting.tensors(*fitting.columns(views))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        scores, partner = net(*parts[:4]), parts[4]
        known = partner >= 0
        pairs = scores[:, :-1].gather(2, partner.where(known, torch.tensor(POINTS))[:, :, None])[:, :, 0]
        missed = torch.ones(BATCH, POINTS + 1, dtype=torch.bool)
        missed.scatter_(1, partner.where(known, torch.tensor(POINTS)), False)
        alone = scores[:, -1, :-1][missed[:, :-1]]
        return -(pairs[known].mean() + 0.5 * pairs[~known].mean() + 0.5 * alone.mean())

    fitting.fit(net, batch, loss, STEPS, rate=1.5e-3)
    rng = np.random.default_rng(2)
    example = fitting.tensors(*(array[None] for array in record.views(rng, (70, 60))[:4]))
    dynamic = {f"{name}{view}": {1: f"count{view}"} for name in ("points", "looks") for view in (0, 1)}
    names = ["points0", "looks0", "points1", "looks1"]
    fitting.export("matcher", net, example, names, ["scores"], dynamic=dynamic)


if __name__ == "__main__":
    fitting.start()
    main()
