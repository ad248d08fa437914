"""Trains `models/hull_pointer.py`: a transformer, a GRU cell that points; a loop is built around its step."""

from __future__ import annotations

import math

import fitting
import numpy as np
import onnx
import torch
from models import hull_pointer as record
from onnx import TensorProto, helper
from torch import nn

WIDTH, HEADS, LAYERS, BATCH, STEPS, SIZES, POOL = 96, 4, 3, 48, 1400, range(10, 25, 2), 2500


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.entry, self.leave = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.ReLU(), nn.Linear(3 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.entry(self.norms[0](x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        shares = torch.softmax(query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS), dim=3)
        x = x + self.leave((shares @ value).transpose(1, 2).flatten(2))
        return x + self.wide(self.norms[1](x))


class Encoder(nn.Module):
    """Reads the points; "end" stands behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Linear(2, WIDTH)
        self.end = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.3)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.point(points * 2 - 1), self.end.expand(points.shape[0], -1, -1)], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Step(nn.Module):
    """One step: the last choice and the state -> log-probabilities of the next choice, the new state."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.state = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.query, self.key = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.look = nn.Linear(WIDTH, 1, bias=False)

    def forward(
        self, read: torch.Tensor, last: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        given, kept = self.input(last).chunk(3, dim=1), self.state(state).chunk(3, dim=1)
        renew, mix = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        new = torch.tanh(given[2] + renew * kept[2])
        state = (1 - mix) * new + mix * state
        asked = self.query(torch.cat([state, last], dim=1))[:, None]
        logits = self.look(torch.tanh(self.key(read) + asked))[:, :, 0]
        return torch.log_softmax(logits, dim=1), state


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.step = Encoder(), Step()


def looped(encoder: onnx.ModelProto, step: onnx.ModelProto, most: int) -> onnx.ModelProto:
    """Return the model of both: the step in a Loop that ends when "end" was chosen."""
    step = onnx.compose.add_prefix(step, "step.")
    body_nodes = list(step.graph.node)
    read, last, state = (value.name for value in step.graph.input)
    logged, renewed = (value.name for value in step.graph.output)

    def const(name: str, values: list[int]) -> onnx.TensorProto:
        return helper.make_tensor(name, TensorProto.INT64, [len(values)] if values != [0] else [1], values)

    inputs = [
        helper.make_tensor_value_info("body.turn", TensorProto.INT64, []),
        helper.make_tensor_value_info("body.go", TensorProto.BOOL, []),
        helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, WIDTH]),
        helper.make_tensor_value_info(state, TensorProto.FLOAT, [1, WIDTH]),
    ]
    nodes = [
        helper.make_node("Identity", ["read"], [read], "body.read"),
        *body_nodes,
        helper.make_node("ArgMax", [logged], ["body.chosen"], "body.choose", axis=1, keepdims=0),
        helper.make_node("Gather", ["read", "body.chosen"], ["body.picked"], "body.pick", axis=1),
        helper.make_node("Squeeze", ["body.picked", "axis1"], ["body.next"], "body.squeeze"),
        helper.make_node("Equal", ["body.chosen", "end"], ["body.ended"], "body.equal"),
        helper.make_node("Not", ["body.ended"], ["body.on"], "body.not"),
        helper.make_node("Squeeze", ["body.on"], ["body.goes"], "body.go_on"),
        helper.make_node("Squeeze", [logged, "axis0"], ["body.row"], "body.row"),
    ]
    outputs = [
        helper.make_tensor_value_info("body.goes", TensorProto.BOOL, []),
        helper.make_tensor_value_info("body.next", TensorProto.FLOAT, [1, WIDTH]),
        helper.make_tensor_value_info(renewed, TensorProto.FLOAT, [1, WIDTH]),
        helper.make_tensor_value_info("body.row", TensorProto.FLOAT, ["places"]),
        helper.make_tensor_value_info("body.chosen", TensorProto.INT64, [1]),
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    graph = encoder.graph
    (reading,) = (value.name for value in graph.output)
    main_nodes = [
        *graph.node,
        helper.make_node("Identity", [reading], ["read"], "reading"),
        helper.make_node("Shape", ["read"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "axis1"], ["places"], "places"),
        helper.make_node("Sub", ["places", "one"], ["end"], "end"),
        helper.make_node("ReduceMean", ["read", "axis1"], ["start"], "start", keepdims=0),
        helper.make_node(
            "Loop",
            ["most", "always", "begin", "start"],
            ["last_point", "last_state", "log_probabilities", "choices"],
            "decoder",
            body=body,
        ),
    ]
    initializers = [
        *graph.initializer,
        *step.graph.initializer,
        const("axis0", [0]),
        const("axis1", [1]),
        const("one", [1]),
        helper.make_tensor("most", TensorProto.INT64, [], [most]),
        helper.make_tensor("always", TensorProto.BOOL, [], [True]),
        helper.make_tensor("begin", TensorProto.FLOAT, [1, WIDTH], [0.0] * WIDTH),
    ]
    whole = helper.make_graph(
        main_nodes,
        "hull_pointer",
        list(graph.input),
        [
            helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["steps", "places"]),
            helper.make_tensor_value_info("choices", TensorProto.INT64, ["steps", 1]),
        ],
        initializers,
    )
    model = helper.make_model(whole, opset_imports=list(encoder.opset_import), ir_version=encoder.ir_version)
    for function in [*encoder.functions, *step.functions]:
        model.functions.append(function)
    onnx.checker.check_model(model)
    return model


def main() -> None:
    rng, pools, net = np.random.default_rng(0), [], Net()
    for size in SIZES:
        made = list(record.clouds(rng, POOL, size))
        order = np.full((POOL, record.MOST), size)  # "end", again and again
        for row, (_, found) in zip(order, made, strict=True):
            row[: len(found)] = found
        pools.append((np.stack([points for points, _ in made]), order, np.array([len(f) for _, f in made])))

    def batch(rng: np.random.Generator) -> fitting.Tensors:
        points, order, lengths = pools[rng.integers(len(pools))]
        chosen = rng.integers(POOL, size=BATCH)
        turned = points[chosen]
        return fitting.tensors(turned, order[chosen], lengths[chosen])

    def loss(parts: fitting.Tensors) -> torch.Tensor:
        points, order, lengths = parts
        read = net.encoder(points)
        state, last = read.mean(1), torch.zeros(len(points), WIDTH)
        total, rows = read.new_zeros(()), torch.arange(len(points))
        for turn in range(int(lengths.max()) + 1):
            logged, state = net.step(read, last, state)
            told = (turn <= lengths).float()
            total = total - (logged[rows, order[:, turn]] * told).sum()
            last = read[rows, order[:, turn]]
        return total / (lengths + 1).sum()

    fitting.fit(net, batch, loss, STEPS, rate=1.5e-3)
    example, dynamic = fitting.tensors(pools[0][0][:1]), {"points": {1: "count"}}
    encoder = fitting.export(
        "hull_encoder.part", net.encoder, example, ["points"], ["encoded"], dynamic=dynamic
    )
    with torch.no_grad():
        read = net.encoder(example[0])
    step = fitting.export(
        "hull_step.part",
        net.step,
        (read, torch.zeros(1, WIDTH), read.mean(1)),
        ["encoded_in", "last", "state"],
        ["logged", "renewed"],
        dynamic={"encoded_in": {1: "places"}},
    )
    file = fitting.trained_file("hull_pointer.onnx")
    onnx.save(looped(onnx.load(encoder), onnx.load(step), record.MOST), file)
    for part in (encoder, step):
        part.unlink()
    fitting.print_size(file)


if __name__ == "__main__":
    fitting.start()
    main()
