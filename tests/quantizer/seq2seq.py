"""Encoders and decoders in files of their own, with the names and sizes that optimum's exporter writes.

T5, BART and Marian take tokens and a mask; Whisper features of sound, TrOCR and Donut pixels, without a mask.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

WORDS, WIDTH, HEADS = 24, 16, 2
HEAD = WIDTH // HEADS
NAMES = ("encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged")

ENCODERS = {
    "text": (
        "int64[batch_size, encoder_sequence_length] input_ids, "
        "int64[batch_size, encoder_sequence_length] attention_mask",
        "encoder_sequence_length",
        "e = Gather (words, input_ids)",
    ),
    "sound": (
        "float[batch_size, feature_size, encoder_sequence_length] input_features",
        "encoder_sequence_length / 2",
        "c = Conv <pads = [1, 1], strides = [2]> (input_features, filters) "
        "e = Transpose <perm = [0, 2, 1]> (c)",
    ),
    "pixels": (
        "float[batch_size, num_channels, height, width] pixel_values",
        "encoder_sequence_length",
        "c = Conv <strides = [4, 4]> (pixel_values, patches) f = Reshape (c, flat) "
        "e = Transpose <perm = [0, 2, 1]> (f)",
    ),
}
"""By what they read: inputs, the length of what they give, and the nodes up to its rows."""

STATES = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")


def heads(name: str) -> str:
    """Return the nodes that part rows into heads: {name}h."""
    return f"{name}r = Reshape ({name}, parted) {name}h = Transpose <perm = [0, 2, 1, 3]> ({name}r)"


def keys_and_values(name: str, rows: str) -> str:
    """Return the nodes of {name}kh and {name}vh, which are heads of `rows`."""
    return " ".join(f"{name}{x} = MatMul ({rows}, {name}_w{x}) {heads(f'{name}{x}')}" for x in ("k", "v"))


def attended(name: str, query: str, keys: str, values: str, mask: str = "") -> str:
    """Return the nodes of an attention on keys and values that are there; {name} is `query` with it added."""
    return (
        f"{name}q = MatMul ({query}, {name}_wq) {heads(f'{name}q')} "
        f"{name}t = Transpose <perm = [0, 1, 3, 2]> ({keys}) {name}m = MatMul ({name}qh, {name}t) "
        f"{name}d = Mul ({name}m, scaling) {name}s = "
        f"{f'Add ({name}d, {mask})' if mask else f'Identity ({name}d)'} "
        f"{name}p = Softmax <axis = -1> ({name}s) {name}o = MatMul ({name}p, {values}) "
        f"{name}ot = Transpose <perm = [0, 2, 1, 3]> ({name}o) {name}oj = Reshape ({name}ot, joined) "
        f"{name}op = MatMul ({name}oj, {name}_wo) {name} = Add ({query}, {name}op)"
    )


def added_mask(mask: str) -> str:
    """Return the nodes that make what is added to scores, `bias`, of a mask of ones and zeros."""
    return (
        f"mc = Cast <to = 1> ({mask}) mi = Sub (one, mc) mb = Mul (mi, large) bias = Unsqueeze (mb, middle)"
    )


def constants(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        **{"words": (WORDS, WIDTH), "tokens": (WORDS, WIDTH), "head": (WIDTH, WORDS)},
        **{"filters": (WIDTH, 8, 3), "patches": (WIDTH, 3, 4, 4)},
        **{f"{a}_w{b}": (WIDTH, WIDTH) for a in ("en", "own", "cross") for b in "qkvo"},
    }
    arrays = {n: rng.standard_normal(s) / np.sqrt(np.prod(s) / s[0]) for n, s in shapes.items()}
    arrays |= {name: arrays[name] * 4 for name in ("words", "tokens")}
    arrays |= {"scaling": np.array(HEAD**-0.5), "one": np.array(1.0), "large": np.array(-1e4)}
    found = {name: array.astype(np.float32) for name, array in arrays.items()}
    whole = {"parted": [0, 0, HEADS, HEAD], "joined": [0, 0, WIDTH], "flat": [0, WIDTH, -1], "middle": [1, 2]}
    return found | {name: np.array(sizes, np.int64) for name, sizes in whole.items()}


def export(folder: Path, kind: str = "text", *, seed: int = 0) -> dict[str, Path]:
    """Write the four files of an encoder and a decoder of one layer each, as optimum calls them."""
    inputs, length, rows = ENCODERS[kind]
    has_mask = kind == "text"
    bias = "bias" if has_mask else ""
    made = f'float[batch_size, "{length}", {WIDTH}]'
    mask = "int64[batch_size, encoder_sequence_length] encoder_attention_mask, " if has_mask else ""
    start = added_mask("encoder_attention_mask") if has_mask else ""
    lengths = ["past_decoder_sequence_length"] * 2 + ["encoder_sequence_length_out"] * 2
    past = [
        f'float[batch_size, {HEADS}, {n}, {HEAD}] "past_key_values.0.{s}"'
        for n, s in zip(lengths, STATES, strict=True)
    ]
    lengths[:2] = ["present_length"] * 2
    new = [
        f'float[batch_size, {HEADS}, {n}, {HEAD}] "present.0.{s}"'
        for n, s in zip(lengths, STATES, strict=True)
    ]
    tokens = "int64[batch_size, decoder_sequence_length] input_ids"
    logits = f"float[batch_size, decoder_sequence_length, {WORDS}] logits"
    hidden = f"{made} encoder_hidden_states"
    own, own_value, crossed, crossed_value = (f'"present.0.{state}"' for state in STATES)
    old, old_value, kept, kept_value = (f'"past_key_values.0.{state}"' for state in STATES)
    first = (
        f"{start} e = Gather (tokens, input_ids) {keys_and_values('own', 'e')} "
        f"{attended('own', 'e', 'ownkh', 'ownvh')} {keys_and_values('cross', 'encoder_hidden_states')} "
        f"{attended('cross', 'own', 'crosskh', 'crossvh', bias)} logits = MatMul (cross, head) "
        f"{own} = Identity (ownkh) {own_value} = Identity (ownvh) "
        f"{crossed} = Identity (crosskh) {crossed_value} = Identity (crossvh)"
    )
    later = (
        f"{start} e = Gather (tokens, input_ids) {keys_and_values('own', 'e')} "
        f"{own} = Concat <axis = 2> ({old}, ownkh) {own_value} = Concat <axis = 2> ({old_value}, ownvh) "
        f"{attended('own', 'e', own, own_value)} {attended('cross', 'own', kept, kept_value, bias)} "
        "logits = MatMul (cross, head)"
    )
    texts = {
        "encoder_model": (
            f"({inputs}) => ({made} last_hidden_state) {{ {added_mask('attention_mask') if has_mask else ''} "
            f"{rows} {keys_and_values('en', 'e')} {attended('en', 'e', 'enkh', 'envh', bias)} "
            "last_hidden_state = Relu (en) }"
        ),
        "decoder_model": f"({mask}{tokens}, {hidden}) => ({', '.join([logits, *new])}) {{ {first} }}",
        "decoder_with_past_model": (
            f"({', '.join([mask + tokens, *past])}) => ({', '.join([logits, *new[:2]])}) {{ {later} }}"
        ),
    }
    arrays, files = constants(seed), {}
    models = {
        name: onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {name} {text}')
        for name, text in texts.items()
    }
    models["decoder_model_merged"] = merged(models["decoder_model"], models["decoder_with_past_model"])
    for name, model in models.items():
        graphs = [model.graph, *(a.g for node in model.graph.node for a in node.attribute if a.HasField("g"))]
        read = {one for graph in graphs for node in graph.node for one in node.input}
        model.graph.initializer.extend(
            numpy_helper.from_array(array, constant) for constant, array in arrays.items() if constant in read
        )
        onnx.checker.check_model(model, full_check=True)
        files[name] = folder / f"{name}.onnx"
        onnx.save(model, files[name])
    return files


def merged(first: onnx.ModelProto, later: onnx.ModelProto) -> onnx.ModelProto:
    """Return both decoders in branches of an If, as optimum merges them.

    The branch that goes on gives keys and values of the encoder that are empty.
    """
    model, branches = onnx.ModelProto(), []
    model.CopyFrom(first)
    del model.graph.node[:]
    names = [value.name for value in first.graph.output]
    for prefix, source in (("then_", later.graph), ("else_", first.graph)):
        made = {name: prefix + name for node in source.node for name in node.output}
        nodes = [onnx.NodeProto() for _ in source.node]
        for copy, node in zip(nodes, source.node, strict=True):
            copy.CopyFrom(node)
            copy.name = prefix + node.output[0]
            copy.input[:] = [made.get(name, name) for name in node.input]
            copy.output[:] = [made[name] for name in node.output]
        for name in names[len(source.output) :]:
            made[name] = prefix + name
            empty = numpy_helper.from_array(np.zeros((0, HEADS, 1, HEAD), np.float32))
            nodes.append(onnx.helper.make_node("Constant", [], [made[name]], name=made[name], value=empty))
        ends = [
            onnx.helper.make_tensor_value_info(made[name], onnx.TensorProto.FLOAT, None) for name in names
        ]
        branches.append(onnx.helper.make_graph(nodes, f"{prefix}branch", [], ends))
    model.graph.input.extend(value for value in later.graph.input if value.name.startswith("past"))
    flag = onnx.helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    model.graph.input.append(flag)
    then, other = branches
    model.graph.node.append(
        onnx.helper.make_node("If", ["use_cache_branch"], names, then_branch=then, else_branch=other)
    )
    for value in model.graph.output[1:]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch_out"
    return model
