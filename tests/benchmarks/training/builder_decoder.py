"""Trains `models/builder_decoder.py`: the net of char_decoder, wider, on the pieces of piece_decoder.

It is written in the operators of onnxruntime-genai's builder, which PyTorch's exporter does not know.
"""

from __future__ import annotations

import fitting
import numpy as np
import onnx
from char_decoder import Net
from models import builder_decoder as record
from models import piece_decoder
from onnx import numpy_helper, parser
from piece_decoder import written_pieces

STEPS = 400
LAYER = """
    [q{i}] query{i} = MatMul (normal{i}, wq{i}) [k{i}] key{i} = MatMul (normal{i}, wk{i})
    [v{i}] value{i} = MatMul (normal{i}, wv{i})
    [attention{i}] joined{i}, "present.{i}.key", "present.{i}.value" = com.microsoft.GroupQueryAttention
        <num_heads = {heads}, kv_num_heads = {key_heads}, do_rotary = 1>
        (query{i}, key{i}, value{i}, "past.{i}.key", "past.{i}.value", lengths, total, cosines, sines)
    [o{i}] attended{i} = MatMul (joined{i}, wo{i})
    [between{i}] middle{i}, , , sum{i} = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001>
        (stream{i}, attended{i}, between{i})
    [gate{i}] gated{i} = MatMul (middle{i}, wg{i}) [up{i}] raised{i} = MatMul (middle{i}, wu{i})
    [sigmoid{i}] open{i} = Sigmoid (gated{i}) [silu{i}] silu{i} = Mul (gated{i}, open{i})
    [inner{i}] inner{i} = Mul (silu{i}, raised{i}) [down{i}] fed{i} = MatMul (inner{i}, wd{i})
    [before{j}] normal{j}, , , stream{j} = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001>
        (sum{i}, fed{i}, before{j})
"""


def written(net: Net) -> onnx.ModelProto:
    """Return the trained net in the builder's operators."""
    count, cache = record.LAYERS, f"1, {record.KEY_HEADS}, {{}}, {record.HEAD_WIDTH}"
    past, present = (
        ", ".join(f'float[{cache.format(size)}] "{name}"' for name in record.DECODER.cache_names(when))
        for when, size in (("past", "before"), ("present", "all"))
    )
    heads = {"heads": record.HEADS, "key_heads": record.KEY_HEADS}
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        decoder (int64[1, new] input_ids, int64[1, all] attention_mask, {past})
            => (float[1, new, {piece_decoder.PIECES}] logits, {present})
            <int64[1] last_axis = {{1}}, int64 second = {{1}}, int64[1] one = {{1}}> {{
        [embed] stream0 = Gather (table, input_ids)
        [ones] ones = ReduceSum (attention_mask, last_axis) [fewer] fewer = Sub (ones, one)
        [lengths] lengths = Cast <to = 6> (fewer)
        [sizes] sizes = Shape (attention_mask) [long] long = Gather <axis = 0> (sizes, second)
        [total] total = Cast <to = 6> (long)
        [before0] normal0 = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001> (stream0, before0)
        {"".join(LAYER.format(i=i, j=i + 1, **heads) for i in range(count))}
        [head] logits = MatMul (normal{count}, head)
    }}"""
    )
    weights = {"table": net.letters.weight, "head": net.head.weight.T, f"before{count}": net.last.scale}
    for i, layer in enumerate(net.layers):
        weights |= {f"before{i}": layer.before.scale, f"between{i}": layer.between.scale}
        products = {"q": layer.query, "k": layer.key, "v": layer.value, "o": layer.joined}
        products |= {"g": layer.gate, "u": layer.up, "d": layer.down}
        weights |= {f"w{letter}{i}": product.weight.T for letter, product in products.items()}
    half = record.HEAD_WIDTH // 2
    weights |= {"cosines": net.cosines[:, :half], "sines": net.sines[:, :half]}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(tensor.detach().numpy()), name)
        for name, tensor in weights.items()
    )
    # The last norm's sum has no reader.
    last = next(node for node in model.graph.node if node.name == f"before{count}")
    del last.output[1:]
    return model


def main() -> None:
    file = written_pieces()
    heads = {"heads": record.HEADS, "key_heads": record.KEY_HEADS, "head_width": record.HEAD_WIDTH}
    net = Net(piece_decoder.PIECES, record.LAYERS, record.WIDTH, record.INNER, **heads)
    texts = piece_decoder.texts(file, "training")
    fitting.train_decoder(net, record.DECODER, texts=texts, steps=STEPS, rate=3e-3)
    path = fitting.trained_file("builder_decoder.onnx")
    onnx.save(written(net), path)
    fitting.print_size(path)


if __name__ == "__main__":
    fitting.start()
    main()
