"""Trains `models/syntax_graph.py`: gated graph convolutions with residuals (Bresson and Laurent, 2017)."""

from __future__ import annotations

import fitting
import numpy as np
import torch
from models import syntax_graph as data
from torch import nn

WIDTH, LAYERS, BATCH, STEPS = 96, 5, 12, 1000


class Layer(nn.Module):
    """Each node takes the mean of its neighbours' messages, weighted by gates of its own."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.message, self.own = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.sending, self.taking = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.relations = nn.Embedding(relations, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, relation: torch.Tensor
    ) -> torch.Tensor:
        asked = self.sending(x).index_select(0, source) + self.taking(x).index_select(0, target)
        gates = torch.sigmoid(asked + self.relations(relation))
        zeros = torch.zeros_like(x)
        total = zeros.index_add(0, target, gates * self.message(x).index_select(0, source))
        weight = zeros.index_add(0, target, gates)
        return x + torch.relu(self.norm(self.own(x) + total / (weight + 1e-3)))


class Net(nn.Module):
    def __init__(self, kinds: int, names: int, relations: int) -> None:
        super().__init__()
        self.kinds, self.names = nn.Embedding(kinds + 1, WIDTH), nn.Embedding(names, WIDTH)
        self.layers = nn.ModuleList(Layer(relations) for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, kinds))

    def forward(
        self,
        kinds: torch.Tensor,
        names: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        relation: torch.Tensor,
    ) -> torch.Tensor:
        x = self.kinds(kinds) + self.names(names)
        for layer in self.layers:
            x = layer(x, source, target, relation)
        return self.head(x)


def main() -> None:
    def batch(rng: np.random.Generator) -> fitting.Tensors:
        """Return some functions as one graph of several parts, and what is hidden in it."""
        parts, first = [], 0
        for graph, hidden, truth in data.samples(rng, "training", BATCH):
            offset = np.array([[first], [first], [0]])
            parts.append((graph.kinds, graph.names, graph.edges + offset, hidden + first, truth))
            first += len(graph.kinds)
        kinds, names, edges, hidden, truth = (
            np.concatenate(some, axis=-1) for some in zip(*parts, strict=True)
        )
        return fitting.tensors(kinds, names, *edges, hidden, truth)

    net = Net(len(data.KINDS), data.NAMES, data.RELATIONS)
    fitting.fit(net, batch, lambda b: nn.functional.cross_entropy(net(*b[:5])[b[5]], b[6]), STEPS)
    inputs = ["kinds", "names", "source", "target", "relation"]
    axes = {name: {0: "nodes" if name in inputs[:2] else "edges"} for name in inputs}
    fitting.export("syntax_graph", net, batch(np.random.default_rng(2))[:5], inputs, ["logits"], dynamic=axes)


if __name__ == "__main__":
    fitting.start()
    main()
