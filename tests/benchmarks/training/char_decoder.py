"""Trains `models/char_decoder.py`: RMSNorm, rotary positions, shared key heads and SwiGLU, as in Llama."""

from __future__ import annotations

import fitting
import torch
from models import char_decoder as record
from torch import nn

WIDTH, INNER, STEPS = 128, 352, 700


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, key_heads: int, head_width: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.head_width = heads, key_heads, head_width
        self.before, self.between = Norm(width), Norm(width)
        self.query = nn.Linear(width, heads * head_width, bias=False)
        self.key = nn.Linear(width, key_heads * head_width, bias=False)
        self.value = nn.Linear(width, key_heads * head_width, bias=False)
        self.joined = nn.Linear(heads * head_width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(
        self, x: torch.Tensor, turns: fitting.Tensors, bias: torch.Tensor, past: fitting.Tensors
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        new, size = self.before(x), x.shape[1]
        query = self.split(self.query(new), self.heads, size)
        key = torch.cat([past[0], turned(self.split(self.key(new), self.key_heads, size), turns)], dim=2)
        value = torch.cat([past[1], self.split(self.value(new), self.key_heads, size)], dim=2)
        times = self.heads // self.key_heads
        keys, values = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        scores = turned(query, turns) @ keys.transpose(2, 3) / self.head_width**0.5
        shares = torch.softmax(scores + bias, dim=-1)
        x = x + self.joined((shares @ values).transpose(1, 2).flatten(2))
        inner = self.between(x)
        x = x + self.down(nn.functional.silu(self.gate(inner)) * self.up(inner))
        return x, key, value

    def split(self, x: torch.Tensor, heads: int, size: int) -> torch.Tensor:
        return x.reshape(-1, size, heads, self.head_width).transpose(1, 2)


def turned(x: torch.Tensor, turns: fitting.Tensors) -> torch.Tensor:
    """Rotary positions (Su et al., 2021): halves of a head turned by the angle of the position."""
    first, second = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat([-second, first], dim=-1) * turns[1]


class Net(nn.Module):
    def __init__(
        self,
        letters: int,
        layers: int,
        width: int,
        inner: int,
        *,
        heads: int,
        key_heads: int,
        head_width: int,
    ) -> None:
        super().__init__()
        sizes = (width, inner, heads, key_heads, head_width)
        self.letters = nn.Embedding(letters, width)
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(layers))
        self.last, self.head = Norm(width), nn.Linear(width, letters, bias=False)
        speeds = 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.arange(256)[:, None] * torch.cat([speeds, speeds])
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        nn.init.normal_(self.letters.weight, std=0.3)

    def forward(self, letters: torch.Tensor, *past: torch.Tensor) -> fitting.Tensors:
        x = self.letters(letters)
        before, new = past[0].shape[2], letters.shape[1]
        places = torch.arange(before, before + new)
        turns = self.cosines[places], self.sines[places]
        hidden = torch.arange(before + new)[None, :] > places[:, None]
        bias = torch.where(hidden, -1e9, 0.0)
        present: list[torch.Tensor] = []
        for number, layer in enumerate(self.layers):
            x, key, value = layer(x, turns, bias, past[2 * number : 2 * number + 2])
            present += [key, value]
        return (self.head(self.last(x)), *present)


class Exported(nn.Module):
    """The net with a parameter for each cache, which export needs for its dynamic axes."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, letters, k0, v0, k1, v1, k2, v2, k3, v3):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        return self.net(letters, k0, v0, k1, v1, k2, v2, k3, v3)


def main() -> None:
    heads = {"heads": record.HEADS, "key_heads": record.KEY_HEADS, "head_width": record.HEAD_WIDTH}
    net = Net(len(record.LETTERS), record.LAYERS, WIDTH, INNER, **heads)
    texts = record.texts("training")
    fitting.train_decoder(net, record.DECODER, texts=texts, steps=STEPS, rate=4e-3)
    fitting.export_decoder("char_decoder", Exported(net), record.DECODER)


if __name__ == "__main__":
    fitting.start()
    main()
