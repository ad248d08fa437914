"""Trains `models/surfaces.py`: ConvNeXt's blocks; the weights of the file become float16 behind a Cast."""

from __future__ import annotations

from itertools import pairwise

import fitting
import numpy as np
import onnx
import torch
from models import surfaces as record
from onnx import TensorProto, helper, numpy_helper
from torch import nn

WIDTHS, BLOCKS, BATCH, STEPS, POOL = (32, 64, 112), (2, 2, 2), 32, 900, 8000


class Block(nn.Module):
    """Depthwise 7 x 7, LayerNorm over channels, an MLP with GELU, scales of channels (Liu et al., 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class Net(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTHS[0], 4, 4)
        self.stem_norm = nn.LayerNorm(WIDTHS[0], eps=1e-6)
        self.levels = nn.ModuleList(
            nn.Sequential(*(Block(width) for _ in range(count)))
            for width, count in zip(WIDTHS, BLOCKS, strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for width in WIDTHS[:-1])
        self.halve = nn.ModuleList(nn.Conv2d(inside, outside, 2, 2) for inside, outside in pairwise(WIDTHS))
        self.norm, self.head = nn.LayerNorm(WIDTHS[-1], eps=1e-6), nn.Linear(WIDTHS[-1], classes)

    def forward(self, piece: torch.Tensor) -> torch.Tensor:
        x = self.stem_norm(self.stem(piece * 4 - 2).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for place, level in enumerate(self.levels):
            x = level(x)
            if place < len(self.halve):
                x = self.norms[place](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
                x = self.halve[place](x)
        return self.head(self.norm(x.mean((2, 3))))


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose float32 weights are float16, each behind a Cast to float32."""
    graph, casts = model.graph, []
    for weight in graph.initializer:
        if weight.data_type != TensorProto.FLOAT or np.prod(weight.dims) < 2:
            continue
        name, values = weight.name, numpy_helper.to_array(weight)
        weight.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(helper.make_node("Cast", [f"{name}.half"], [name], f"{name}.cast", to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    onnx.checker.check_model(model)
    return model


def main() -> None:
    pieces, places = fitting.columns(record.pieces(np.random.default_rng(0), "training", POOL))
    net = Net(len(record.PHOTOGRAPHS))

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        chosen = rng.integers(POOL, size=BATCH)
        return fitting.tensors(pieces[chosen].astype(np.float32) / 255, places[chosen])

    fitting.fit(net, batch, lambda b: nn.functional.cross_entropy(net(b[0]), b[1]), STEPS, rate=3e-3)
    example = torch.from_numpy(pieces[:1].astype(np.float32) / 255)
    file = fitting.export("surfaces", net, (example,), ["piece"], ["logits"])
    onnx.save(halved(onnx.load(file)), file)
    fitting.print_size(file)


if __name__ == "__main__":
    fitting.start()
    main()
