"""Trains `models/keywords.py`: convolutions, two bidirectional GRU layers, attention over time (a CRNN)."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import keywords
from torch import nn

WIDTH, STATE, BATCH, STEPS = 64, 96, 24, 900


def convolved(entering: int, leaving: int, stride: tuple[int, int]) -> nn.Sequential:
    depthwise = nn.Conv2d(entering, entering, 3, stride=stride, padding=1, groups=entering, bias=False)
    pointwise = nn.Conv2d(entering, leaving, 1, bias=False)
    return nn.Sequential(
        depthwise, nn.BatchNorm2d(entering), nn.ReLU(), pointwise, nn.BatchNorm2d(leaving), nn.ReLU()
    )


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.entry = nn.BatchNorm2d(1)
        self.stem = nn.Sequential(
            nn.Conv2d(1, WIDTH, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()
        )
        self.body = nn.Sequential(convolved(WIDTH, WIDTH, (1, 2)), convolved(WIDTH, WIDTH, (1, 2)))
        self.recurrent = nn.GRU(WIDTH * 5, STATE, num_layers=2, bidirectional=True, batch_first=True)
        self.look = nn.Linear(2 * STATE, 1)
        self.head = nn.Sequential(
            nn.Linear(2 * STATE, STATE), nn.ReLU(), nn.Dropout(0.2), nn.Linear(STATE, classes)
        )

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.body(self.stem(self.entry(mel)))
        x = x.permute(0, 2, 1, 3).flatten(2)
        x = self.recurrent(x)[0]
        shares = torch.softmax(self.look(x), dim=1)
        return self.head((shares * x).sum(1))


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        spectra, places = zip(*keywords.samples(rng, "training", BATCH), strict=True)
        return fitting.tensors(np.stack(spectra), np.array(places))

    net = Net(len(keywords.CLASSES))
    fitting.fit(net, batch, lambda b: nn.functional.cross_entropy(net(b[0]), b[1]), STEPS, 4e-3)
    example = fitting.tensors(next(keywords.samples(np.random.default_rng(2), "training", 1))[0][None])
    fitting.export("keywords", net, example, ["mel"], ["logits"])


if __name__ == "__main__":
    fitting.start()
    main()
