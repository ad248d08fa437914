"""Trains `models/denoise_step.py`: residual blocks with GroupNorm and SiLU, attention at the lowest level."""

from __future__ import annotations

import math

import fitting
import numpy as np
import torch
from models import denoise_step as record
from torch import nn

WIDTHS, EMBEDDED, GROUPS, HEADS, BATCH, STEPS = (32, 64), 96, 8, 4, 32, 1200


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, inside), nn.GroupNorm(GROUPS, outside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(EMBEDDED, outside)
        self.pass_by = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.pass_by(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.entry, self.leave = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.entry(self.norm(x)).flatten(2).unflatten(1, (3, HEADS, -1))
        query, key, value = parts[:, 0], parts[:, 1], parts[:, 2]
        shares = torch.softmax(query.transpose(2, 3) @ key / math.sqrt(query.shape[2]), dim=3)
        found = (value @ shares.transpose(2, 3)).flatten(1, 2).reshape(x.shape)
        return x + self.leave(found)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        low, high = WIDTHS
        self.register_buffer("rates", torch.exp(torch.linspace(0, -math.log(1e4), 32)))
        self.time = nn.Sequential(
            nn.Linear(64, EMBEDDED), nn.SiLU(), nn.Linear(EMBEDDED, EMBEDDED), nn.SiLU()
        )
        self.entry = nn.Conv2d(1, low, 3, padding=1)
        self.down = nn.ModuleList([Residual(low, low), Residual(low, high), Residual(high, high)])
        self.halve = nn.ModuleList([nn.Conv2d(low, low, 3, 2, 1), nn.Conv2d(high, high, 3, 2, 1)])
        self.look = Attention(high)
        self.middle = Residual(high, high)
        self.up = nn.ModuleList([Residual(2 * high, high), Residual(high + low, low)])
        self.norm, self.leave = nn.GroupNorm(GROUPS, low), nn.Conv2d(low, 1, 3, padding=1)

    def forward(self, noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * self.rates
        t = self.time(torch.cat([torch.sin(angles), torch.cos(angles)], dim=1))
        first = self.down[0](self.entry(noisy), t)
        second = self.down[1](self.halve[0](first), t)
        x = self.down[2](self.halve[1](second), t)
        x = self.middle(self.look(x), t)
        for up, kept in zip(self.up, (second, first), strict=True):
            x = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
            x = up(torch.cat([x, kept], dim=1), t)
        return self.leave(nn.functional.silu(self.norm(x)))


def main() -> None:
    clean, _ = record.digits("training")
    net = Net()

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = clean[rng.integers(len(clean), size=BATCH)]
        time = rng.integers(1, record.TIMES - 50, size=BATCH)
        share = record.kept(time)[:, None, None, None]
        noise = rng.standard_normal(chosen.shape)
        noisy = share**0.5 * chosen + (1 - share) ** 0.5 * noise
        return fitting.tensors(noisy.astype(np.float32), time.astype(np.float32), noise.astype(np.float32))

    fitting.fit(net, batch, lambda b: nn.functional.mse_loss(net(b[0], b[1]), b[2]), STEPS, rate=2e-3)
    example = fitting.tensors(clean[:1], np.array([500], np.float32))
    fitting.export("denoise_step", net, example, ["noisy", "time"], ["noise"])


if __name__ == "__main__":
    fitting.start()
    main()
