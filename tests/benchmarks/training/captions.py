"""Trains `models/captions.py`: CLIP (Radford et al., 2021), a residual net and a causal transformer."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from fitting import convolution
from models import captions as data
from torch import nn

WIDTH, HEADS, LAYERS, GROUPS, STEPS = 96, 4, 2, 8, 1000


class Bottleneck(nn.Module):
    """A residual block; a stride is an average, as in CLIP."""

    def __init__(self, entering: int, inner: int, leaving: int, stride: int) -> None:
        super().__init__()
        smaller = [nn.AvgPool2d(stride)] if stride > 1 else []
        self.body = nn.Sequential(
            *convolution(entering, inner, 1),
            nn.ReLU(),
            *convolution(inner, inner, 3),
            nn.ReLU(),
            *smaller,
            *convolution(inner, leaving, 1),
        )
        self.skip = nn.Sequential(*smaller, *convolution(entering, leaving, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.joined = nn.Linear(width, width)

    def forward(
        self, asking: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        def split(part: torch.Tensor) -> torch.Tensor:
            return part.reshape(part.shape[0], part.shape[1], HEADS, part.shape[2] // HEADS).transpose(1, 2)

        query, key, value = split(self.query(asking)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
        shares = torch.softmax(scores if bias is None else scores + bias, dim=-1)
        return self.joined((shares @ value).transpose(1, 2).flatten(2))


class PictureTower(nn.Module):
    """Ends in attention whose query is the mean of all places."""

    def __init__(self, side: int) -> None:
        super().__init__()
        last = 2 * WIDTH
        self.stem = nn.Sequential(*convolution(3, 24, 3, 2), nn.ReLU(), *convolution(24, 48, 3, 2), nn.ReLU())
        self.body = nn.Sequential(
            Bottleneck(48, 32, 96, 1), Bottleneck(96, 48, 128, 2), Bottleneck(128, 64, last, 1)
        )
        self.places = nn.Parameter(torch.randn((side // 8) ** 2 + 1, last) * 0.1)
        self.pool, self.project = Attention(last), nn.Linear(last, WIDTH, bias=False)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = self.body(self.stem((pictures - 0.5) / 0.27)).flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], dim=1) + self.places
        return self.project(self.pool(x[:, :1], x)[:, 0])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        normal = self.before(x)
        x = x + self.attention(normal, normal, bias)
        inner = self.inner(self.between(x))
        return x + self.outer(inner * torch.sigmoid(1.702 * inner))


class CaptionTower(nn.Module):
    """What stands at the end of the caption is its vector."""

    def __init__(self, words: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, WIDTH)
        self.places = nn.Parameter(torch.randn(length, WIDTH) * 0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.project = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("bias", torch.triu(torch.full((length, length), -1e4), diagonal=1))

    def forward(self, captions: torch.Tensor) -> torch.Tensor:
        x = self.words(captions) + self.places
        for layer in self.layers:
            x = layer(x, self.bias)
        end = captions.argmax(dim=1)[:, None, None].expand(-1, 1, WIDTH)
        return self.project(torch.gather(self.last(x), 1, end)[:, 0])


class Net(nn.Module):
    def __init__(self, side: int, words: int, length: int) -> None:
        super().__init__()
        self.pictures, self.captions = PictureTower(side), CaptionTower(words, length)
        self.scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, pictures: torch.Tensor, captions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        towers = self.pictures(pictures), self.captions(captions)
        seen, said = (vector / vector.norm(dim=1, keepdim=True) for vector in towers)
        return seen, said


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        pictures, captions = zip(*(data.group(rng, "training") for _ in range(GROUPS)), strict=True)
        return fitting.tensors(np.concatenate(pictures), np.concatenate(captions))

    net = Net(data.SIDE, len(data.WORDS), data.TOKENS)

    def loss(given: fitting.Tensors) -> torch.Tensor:
        seen, said = net(*given)
        near = seen @ said.T * net.scale.clamp(max=4.6).exp()
        own = torch.arange(len(near))
        return (nn.functional.cross_entropy(near, own) + nn.functional.cross_entropy(near.T, own)) / 2

    fitting.fit(net, batch, loss, STEPS, 1.5e-3)
    pictures, captions = batch(np.random.default_rng(2))
    example, names = (pictures[: data.GROUP], captions[: data.GROUP]), ["picture_vectors", "caption_vectors"]
    fitting.export("captions", net, example, ["pictures", "captions"], names)


if __name__ == "__main__":
    fitting.start()
    main()
