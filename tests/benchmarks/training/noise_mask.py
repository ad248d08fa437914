"""Trains `models/noise_mask.py`: two LSTM layers and a Sigmoid, on powers."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import noise_mask as record
from torch import nn

WIDTH, BATCH, STEPS, POOL = 128, 16, 700, 3000


class Net(nn.Module):
    def __init__(self, typical: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("typical", torch.from_numpy(typical.astype(np.float32)))
        self.recurrent = nn.LSTM(len(typical), WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, len(typical))

    def forward(self, powers: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(powers / self.typical)[0])

    def fold(self) -> None:
        """Move the division by each bin's typical power into the weights of the first layer."""
        self.recurrent.weight_ih_l0.data /= self.typical
        self.typical.fill_(1.0)


class Exported(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.recurrent, self.head = net.recurrent, net.head

    def forward(self, powers: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.head(self.recurrent(powers)[0]))


def main() -> None:
    inputs, above, counted = fitting.columns(record.clips(np.random.default_rng(0), "training", POOL, 400))
    net = Net(inputs.mean(axis=(0, 1)))

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        return fitting.tensors(inputs[chosen], above[chosen].astype(np.float32), counted[chosen])

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        truth, heard = parts[1], parts[2]
        each = nn.functional.binary_cross_entropy_with_logits(net(parts[0]), truth, reduction="none")
        voice, noise = heard * truth, heard * (1 - truth)
        return sum((each * cells).sum() / cells.sum().clamp(min=1) for cells in (voice, noise))

    fitting.fit(net, batch, loss, STEPS, rate=4e-3)
    net.fold()
    example = fitting.tensors(inputs[:1])
    fitting.export(
        "noise_mask", Exported(net), example, ["powers"], ["mask"], dynamic={"powers": {1: "frames"}}
    )


if __name__ == "__main__":
    fitting.start()
    main()
