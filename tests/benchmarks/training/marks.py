"""Trains `models/marks.py`: a transformer as BERT has it; onnxruntime fuses the exported graph."""

from __future__ import annotations

import math

import fitting
import numpy as np
import onnx
import onnxruntime
import torch
from models import marks as record
from torch import nn

WIDTH, HEADS, LAYERS, LONGEST, BATCH, STEPS, SIZE, CLASSES = 128, 4, 3, 200, 24, 1000, 112, 5


class Layer(nn.Module):
    """Attention and MLP, each added and then normalised (Devlin et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.leave = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(2, (HEADS, -1)).transpose(1, 2)

        query, key, value = (split(part(x)) for part in (self.query, self.key, self.value))
        shares = torch.softmax(query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS), dim=3)
        x = self.norms[0](x + self.leave((shares @ value).transpose(1, 2).flatten(2)))
        return self.norms[1](x + self.narrow(nn.functional.gelu(self.wide(x))))


class Net(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(LONGEST, WIDTH)
        nn.init.normal_(self.place.weight, std=0.3)
        # What stands around a letter, as words are not known.
        self.near = nn.Conv1d(WIDTH, WIDTH, 7, padding=3)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        x = self.letter(letters)
        x = x + self.near(x.transpose(1, 2)).transpose(1, 2) + self.place.weight[: letters.shape[1]]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main() -> None:
    net = Net(len(record.LETTERS))
    weights = torch.tensor([1.0] + [2.0] * (CLASSES - 1))

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        return fitting.tensors(*fitting.columns(record.passages(rng, "training", BATCH, SIZE)))

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        return nn.functional.cross_entropy(net(parts[0]).flatten(0, 1), parts[1].flatten(), weights)

    fitting.fit(net, batch, loss, STEPS, rate=2e-3)
    example = fitting.tensors(next(record.passages(np.random.default_rng(2), "training", 1, SIZE))[0][None])
    dynamic = {"letters": {1: "count"}}
    part = fitting.export("marks.part", net, example, ["letters"], ["logits"], dynamic=dynamic)
    file = fitting.trained_file("marks.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(file)
    onnxruntime.InferenceSession(str(part), options, providers=["CPUExecutionProvider"])
    part.unlink()
    onnx.checker.check_model(onnx.load(file))
    fitting.print_size(file)


if __name__ == "__main__":
    fitting.start()
    main()
