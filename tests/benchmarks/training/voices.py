"""Trains `models/voices.py`: Fourier transform and mel bands in the graph, ECAPA blocks, pooled moments."""

from __future__ import annotations

import fitting
import numpy as np
import speech
import torch
from models import voices as record
from torch import nn

SIZE, HOP, BANDS, WIDTH, LEAVING, BATCH, STEPS = 400, 160, 40, 96, 96, 32, 900


class FrontEnd(nn.Module):
    """Log mel bands of a waveform, without the FFT: two convolutions are the real and the imaginary part."""

    def __init__(self) -> None:
        super().__init__()
        angle = 2 * np.pi * np.outer(np.arange(SIZE // 2 + 1), np.arange(SIZE)) / SIZE
        window = np.hanning(SIZE + 1)[:-1]
        for name, wave in (("real", np.cos(angle)), ("imaginary", -np.sin(angle))):
            self.register_buffer(name, torch.from_numpy((wave * window).astype(np.float32))[:, None])
        filters = speech.mel_filters(BANDS, SIZE, 7600.0).T
        self.register_buffer("filters", torch.from_numpy(filters.astype(np.float32)))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        real = nn.functional.conv1d(sound[:, None], self.real, stride=HOP)
        imaginary = nn.functional.conv1d(sound[:, None], self.imaginary, stride=HOP)
        power = real**2 + imaginary**2
        mel = power.transpose(1, 2) @ self.filters
        log = torch.log(mel.clamp(min=1e-10)).transpose(1, 2)
        return log - log.mean(dim=2, keepdim=True)


class Block(nn.Module):
    """A convolution over time, dilated, with squeeze and excitation, added to its input."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.entry = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 1), nn.ReLU(), nn.BatchNorm1d(WIDTH))
        wide = nn.Conv1d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation, groups=4)
        self.wide = nn.Sequential(wide, nn.ReLU(), nn.BatchNorm1d(WIDTH))
        self.leave = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 1), nn.ReLU(), nn.BatchNorm1d(WIDTH))
        self.gate = nn.Sequential(nn.Conv1d(WIDTH, 32, 1), nn.ReLU(), nn.Conv1d(32, WIDTH, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.leave(self.wide(self.entry(x)))
        return x + y * self.gate(y.mean(dim=2, keepdim=True))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = FrontEnd()
        self.stem = nn.Sequential(nn.Conv1d(BANDS, WIDTH, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(WIDTH))
        self.blocks = nn.ModuleList(Block(dilation) for dilation in (2, 3, 4))
        self.joined = nn.Sequential(nn.Conv1d(3 * WIDTH, 192, 1), nn.ReLU())
        self.look = nn.Sequential(nn.Conv1d(192, 48, 1), nn.Tanh(), nn.Conv1d(48, 192, 1))
        self.head = nn.Sequential(nn.BatchNorm1d(384), nn.Linear(384, LEAVING))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        x, kept = self.stem(self.front(sound)), []
        for block in self.blocks:
            x = block(x)
            kept.append(x)
        x = self.joined(torch.cat(kept, dim=1))
        shares = torch.softmax(self.look(x), dim=2)
        mean = (shares * x).sum(2)
        spread = torch.sqrt(((shares * x**2).sum(2) - mean**2).clamp(min=1e-4))
        vector = self.head(torch.cat([mean, spread], dim=1))
        return vector / torch.linalg.vector_norm(vector, dim=1, keepdim=True)


def main() -> None:
    said = record._said("training")
    net, centres = Net(), nn.Parameter(torch.randn(len(said), LEAVING))
    net.register_parameter("centres", centres)

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(len(said), size=BATCH)
        return fitting.tensors(np.stack([record._sound(rng, said[voice]) for voice in chosen]), chosen)

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        # Cosines with a margin (Wang et al., CosFace, 2018).
        near = net(parts[0]) @ nn.functional.normalize(centres, dim=1).T
        margin = 0.15 * nn.functional.one_hot(parts[1], len(said))
        return nn.functional.cross_entropy(20 * (near - margin), parts[1])

    fitting.fit(net, batch, loss, STEPS, rate=3e-3)
    del net.centres
    example = fitting.tensors(record._sound(np.random.default_rng(2), said[0])[None])
    fitting.export("voices", net, example, ["sound"], ["vector"])


if __name__ == "__main__":
    fitting.start()
    main()
