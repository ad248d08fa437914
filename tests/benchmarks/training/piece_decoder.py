"""Trains `models/piece_decoder.py`: LayerNorm, learned positions, one product for queries, keys and values,
GELU, a tied table, as in GPT-2. Its tokenizer is written beside it."""

from __future__ import annotations

from pathlib import Path

import fitting
import torch
from models import piece_decoder as record
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

STEPS = 1000


class Layer(nn.Module):
    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        width = heads * head_width
        self.heads, self.head_width = heads, head_width
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.seen, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor, past: fitting.Tensors
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        parts = self.seen(self.before(x)).chunk(3, dim=-1)
        query, key, value = (
            part.reshape(-1, x.shape[1], self.heads, self.head_width).transpose(1, 2) for part in parts
        )
        key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        shares = torch.softmax(query @ key.transpose(2, 3) / self.head_width**0.5 + bias, dim=-1)
        x = x + self.joined((shares @ value).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x)))), key, value


class Net(nn.Module):
    def __init__(self, pieces: int, layers: int, heads: int, head_width: int, places: int) -> None:
        super().__init__()
        width = heads * head_width
        self.pieces, self.places = nn.Embedding(pieces, width), nn.Embedding(places, width)
        self.layers = nn.ModuleList(Layer(heads, head_width) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, pieces, bias=False)
        nn.init.normal_(self.pieces.weight, std=0.06)
        nn.init.normal_(self.places.weight, std=0.02)
        self.head.weight = self.pieces.weight

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> fitting.Tensors:
        before, new = past[0].shape[2], ids.shape[1]
        places = torch.arange(before, before + new)
        x = self.pieces(ids) + self.places(places)
        hidden = torch.arange(before + new)[None, :] > places[:, None]
        bias = torch.where(hidden, -1e9, 0.0)
        present: list[torch.Tensor] = []
        for number, layer in enumerate(self.layers):
            x, key, value = layer(x, bias, past[2 * number : 2 * number + 2])
            present += [key, value]
        return (self.head(self.last(x)), *present)


class Exported(nn.Module):
    """The net with a parameter for each cache, which export needs for its dynamic axes."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids, k0, v0, k1, v1, k2, v2, k3, v3, k4, v4):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        return self.net(ids, k0, v0, k1, v1, k2, v2, k3, v3, k4, v4)


def written_pieces() -> Path:
    """Write the tokenizer, a byte-pair encoding of the training texts, and return its file."""
    words, file = Tokenizer(models.BPE()), fitting.trained_file("pieces.json")
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=record.PIECES, initial_alphabet=alphabet, show_progress=False)
    words.train_from_iterator(record.written("training"), trainer)
    words.save(str(file))
    return file


def main() -> None:
    file = written_pieces()
    net = Net(record.PIECES, record.LAYERS, record.HEADS, record.HEAD_WIDTH, record.PLACES)
    texts = record.texts(file, "training")
    fitting.train_decoder(net, record.DECODER, texts=texts, steps=STEPS, rate=3e-3)
    fitting.export_decoder("piece_decoder", Exported(net), record.DECODER)


if __name__ == "__main__":
    fitting.start()
    main()
