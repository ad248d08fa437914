"""Trains `models/length_regulator.py`: attention and convolutions, durations, gated dilated convolutions."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import length_regulator as record
from torch import nn

WIDTH, HEADS, BATCH, STEPS, MOST = 96, 2, 8, 1100, 900
DILATIONS = (1, 2, 4, 1, 2, 4)


class Norm(nn.Module):
    """LayerNorm over the channels of (batch, channels, time)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts, self.joined = nn.Conv1d(WIDTH, 3 * WIDTH, 1), nn.Conv1d(WIDTH, WIDTH, 1)
        self.wide = nn.Conv1d(WIDTH, 2 * WIDTH, 3, padding=1)
        self.narrow = nn.Conv1d(2 * WIDTH, WIDTH, 3, padding=1)
        self.first, self.second = Norm(), Norm()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        size = x.shape[2]
        query, key, value = self.parts(x).reshape(x.shape[0], 3, HEADS, WIDTH // HEADS, size).unbind(1)
        scores = query.transpose(2, 3) @ key / (WIDTH // HEADS) ** 0.5 + (mask[:, :, None, :] - 1) * 1e4
        context = value @ torch.softmax(scores, dim=-1).transpose(2, 3)
        x = self.first(x + self.joined(context.reshape(x.shape[0], WIDTH, size)))
        return self.second(x + self.narrow(torch.relu(self.wide(x * mask)) * mask)) * mask


class Gate(nn.Module):
    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(WIDTH, 2 * WIDTH, 3, padding=dilation, dilation=dilation)
        self.out = nn.Conv1d(WIDTH, 2 * WIDTH, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = self.wide(x).chunk(2, dim=1)
        rest, skip = self.out(torch.tanh(left) * torch.sigmoid(right)).chunk(2, dim=1)
        return (x + rest) * mask, skip


class Net(nn.Module):
    def __init__(self, phonemes: int, bands: int, floor: float) -> None:
        super().__init__()
        self.floor = floor
        self.names, self.stress = nn.Embedding(phonemes, WIDTH), nn.Embedding(2, WIDTH)
        self.stem = nn.Conv1d(WIDTH, WIDTH, 5, padding=2)
        self.encoders = nn.ModuleList(Encoder() for _ in range(3))
        self.d1, self.d2 = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.n1, self.n2, self.last = Norm(), Norm(), nn.Conv1d(WIDTH, 1, 1)
        self.place = nn.Conv1d(2, WIDTH, 1)
        self.gates = nn.ModuleList(Gate(dilation) for dilation in DILATIONS)
        self.mixed, self.head = nn.Conv1d(WIDTH, WIDTH, 1), nn.Conv1d(WIDTH, bands, 1)

    def encoded(self, phonemes: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the phonemes' channels, and the logarithms of their durations in frames."""
        x = (self.names(phonemes[:, 0]) + self.stress(phonemes[:, 1])).transpose(1, 2)
        x = x + torch.relu(self.stem(x * mask))
        for layer in self.encoders:
            x = layer(x, mask)
        d = self.n1(torch.relu(self.d1(x))) * mask
        d = self.n2(torch.relu(self.d2(d))) * mask
        return x, self.last(d)[:, 0]

    def decoded(self, x: torch.Tensor, durations: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
        """Return the spectrum in dB; `frames` are the places 0, 1, ... of the frames."""
        ends = torch.cumsum(durations, dim=1)[:, None, :]
        starts = ends - durations[:, None, :]
        at = frames[None, :, None]
        path = ((at >= starts) & (at < ends)).float()
        since = (path * (at - starts)).sum(2)
        share = since / (path * durations[:, None, :]).sum(2).clamp(min=1)
        mask = path.sum(2)[:, None]
        y = x @ path.transpose(1, 2) + self.place(torch.stack([share, since * 0.1], dim=1))
        total = torch.zeros_like(y)
        for gate in self.gates:
            y, skip = gate(y * mask, mask)
            total = total + skip
        spectrum = self.head(torch.relu(self.mixed(torch.relu(total))))
        return spectrum.transpose(1, 2) * 20 + 0.5 * self.floor


class Exported(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, phonemes: torch.Tensor) -> torch.Tensor:
        x, logs = self.net.encoded(phonemes, torch.ones_like(phonemes[:, :1], dtype=torch.float32))
        durations = torch.ceil(torch.exp(logs) - 0.5)
        total = durations.sum().to(torch.int64).item()
        torch._check(total >= 2)
        return self.net.decoded(x, durations, torch.arange(total))


def padded(arrays: list[np.ndarray]) -> np.ndarray:
    """Return arrays as one, with zeros at the ends of the last axis."""
    longest = max(array.shape[-1] for array in arrays)
    return np.stack([np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, longest - a.shape[-1])]) for a in arrays])


def main() -> None:
    made = list(record.utterances("training", 110, MOST))
    net = Net(len(record.PHONEMES), record.BANDS, record.FLOOR)

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = [made[k] for k in rng.integers(len(made), size=BATCH)]
        durations = [durations.astype(np.float32) for _, durations, _ in chosen]
        masks = [np.ones((1, len(given)), np.float32) for given in durations]
        spectra = [spectrum.T.astype(np.float32) for _, _, spectrum in chosen]
        phonemes = [phonemes for phonemes, _, _ in chosen]
        return fitting.tensors(*map(padded, (phonemes, durations, masks, spectra)))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        phonemes, durations, mask, spectra = parts
        x, logs = net.encoded(phonemes, mask)
        whole, places = torch.ceil(durations - 0.5), torch.arange(spectra.shape[2])
        told = net.decoded(x, whole, places).transpose(1, 2)
        heard = (places[None] < whole.sum(1)[:, None]).float()[:, None]
        near = ((told - spectra).abs() * heard).sum() / (heard.sum() * record.BANDS)
        missed = ((torch.exp(logs) - durations).abs() * mask[:, 0]).sum() / mask.sum()
        return near / 5 + 2 * missed

    fitting.fit(net, batch, loss, STEPS, rate=2e-3)
    example = fitting.tensors(made[0][0][None])
    fitting.export(
        "length_regulator", Exported(net), example, ["phonemes"], ["mel"], dynamic={"phonemes": {2: "count"}}
    )


if __name__ == "__main__":
    fitting.start()
    main()
