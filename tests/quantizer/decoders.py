"""A small decoder as onnxruntime-genai's builder lays it out: contrib operators, a cache, RMS norms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import numpy_helper

WIDTH, HEADS, GROUPS, INNER, WORDS, LONGEST = 64, 4, 2, 128, 1200, 64
HEAD = WIDTH // HEADS

TEXT = f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
decoder (int64[B,S] input_ids, int64[B,T] attention_mask,
         float[B,{GROUPS},P,{HEAD}] "past_key_values.0.key",
         float[B,{GROUPS},P,{HEAD}] "past_key_values.0.value")
    => (float[B,S,{WORDS}] logits,
        float[B,{GROUPS},T,{HEAD}] "present.0.key", float[B,{GROUPS},T,{HEAD}] "present.0.value")
    <int64[1] one = {{1}}, int64 second = {{1}}> {{
  [embed] e = Gather (words, input_ids)
  ones = ReduceSum (attention_mask, one)
  less = Sub (ones, one)
  lengths = Cast <to = 6> (less)
  shape = Shape (attention_mask)
  long = Gather <axis = 0> (shape, second)
  total = Cast <to = 6> (long)
  [first_norm] n = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001, stash_type = 1> (e, first)
  [q_proj] q = MatMul (n, wq)
  [k_proj] k = MatMul (n, wk)
  [v_proj] v = MatMul (n, wv)
  [attention] a, "present.0.key", "present.0.value" = com.microsoft.GroupQueryAttention
      <num_heads = {HEADS}, kv_num_heads = {GROUPS}, do_rotary = 1, local_window_size = -1>
      (q, k, v, "past_key_values.0.key", "past_key_values.0.value", lengths, total, cos, sin)
  [o_proj] o = MatMul (a, wo)
  [second_norm] m, , , s = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001>
      (e, o, second_scale)
  [gate_proj] g = MatMul (m, wg)
  [up_proj] u = MatMul (m, wu)
  [gate] t = Sigmoid (g)
  [silu] i = Mul (g, t)
  [product] f = Mul (i, u)
  [down_proj] d = MatMul (f, wd)
  [last_norm] l = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001> (s, d, last)
  [head] logits = MatMul (l, wh)
}}"""


def genai_decoder(folder: Path) -> Path:
    """Write the decoder, and a folder `data` of 8 prompts and 8 steps after one; return its file."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(TEXT)
    shapes = {
        **{"words": (WORDS, WIDTH), "wq": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH), "wh": (WIDTH, WORDS)},
        **dict.fromkeys(("wk", "wv"), (WIDTH, GROUPS * HEAD)),
        **{"wg": (WIDTH, INNER), "wu": (WIDTH, INNER), "wd": (INNER, WIDTH)},
    }
    angles = np.outer(np.arange(LONGEST), 1e4 ** (-np.arange(0, HEAD, 2) / HEAD))
    constants = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    constants |= {"words": constants["words"] * np.sqrt(WORDS), "cos": np.cos(angles), "sin": np.sin(angles)}
    constants |= {name: 1.0 + rng.random(WIDTH) for name in ("first", "second_scale", "last")}
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, folder / "model.onnx")
    (folder / "data").mkdir()
    for number in range(16):
        new, past = (1, 12 + number) if number % 2 else (6 + number, 0)
        cache = rng.standard_normal((2, 1, GROUPS, past, HEAD)).astype(np.float32)
        sample = {
            "input_ids": rng.integers(0, WORDS, (1, new)),
            "attention_mask": np.ones((1, new + past), np.int64),
            "past_key_values.0.key": cache[0],
            "past_key_values.0.value": cache[1],
        }
        np.savez(folder / "data" / f"{number:02}.npz", **sample)
    return folder / "model.onnx"


STANDARD = f"""<ir_version: 9, opset_import: ["": 17]>
decoder (int64[B,S] input_ids, float[B,{GROUPS},P,{HEAD}] "past_key_values.0.key",
         float[B,{GROUPS},P,{HEAD}] "past_key_values.0.value")
    => (float[B,S,{WORDS}] logits,
        float[B,{GROUPS},T,{HEAD}] "present.0.key", float[B,{GROUPS},T,{HEAD}] "present.0.value")
    <int64[4] apart = {{0, 0, -1, {HEAD}}}, int64[3] joined = {{0, 0, {WIDTH}}}, int64[1] steps = {{2}},
     int64[5] twice = {{1, 1, {HEADS // GROUPS}, 1, 1}}, int64[4] heads = {{0, {HEADS}, -1, {HEAD}}},
     int64[1] start = {{0}}, int64[1] half = {{{HEAD // 2}}}, int64[1] end = {{{HEAD}}},
     int64[1] last = {{-1}}, int64 one = {{1}}, float root = {{{HEAD**-0.5}}}> {{
  e = Gather (words, input_ids)
  new_shape = Shape <start = 1, end = 2> (input_ids)
  past_shape = Shape <start = 2, end = 3> ("past_key_values.0.key")
  new = Squeeze (new_shape) past = Squeeze (past_shape) total = Add (past, new)
  places = Range (past, total, one) cosines = Gather (cos, places) sines = Gather (sin, places)
  ql = MatMul (e, wq) kl = MatMul (e, wk) vl = MatMul (e, wv)
  qs = Reshape (ql, apart) ks = Reshape (kl, apart) vs = Reshape (vl, apart)
  qt = Transpose <perm = [0, 2, 1, 3]> (qs) kt = Transpose <perm = [0, 2, 1, 3]> (ks)
  v = Transpose <perm = [0, 2, 1, 3]> (vs)
  q1 = Slice (qt, start, half, last) q2 = Slice (qt, half, end, last) qn = Neg (q2)
  qr = Concat <axis = -1> (qn, q1) qc = Mul (qt, cosines) qx = Mul (qr, sines) q = Add (qc, qx)
  k1 = Slice (kt, start, half, last) k2 = Slice (kt, half, end, last) kn = Neg (k2)
  kr = Concat <axis = -1> (kn, k1) kc = Mul (kt, cosines) kx = Mul (kr, sines) k = Add (kc, kx)
  [keys] "present.0.key" = Concat <axis = 2> ("past_key_values.0.key", k)
  [values] "present.0.value" = Concat <axis = -2> ("past_key_values.0.value", v)
  ku = Unsqueeze ("present.0.key", steps) ke = Expand (ku, twice) kh = Reshape (ke, heads)
  vu = Unsqueeze ("present.0.value", steps) ve = Expand (vu, twice) vh = Reshape (ve, heads)
  ko = Transpose <perm = [0, 1, 3, 2]> (kh) s = MatMul (q, ko) d = Mul (s, root) p = Softmax (d)
  a = MatMul (p, vh) at = Transpose <perm = [0, 2, 1, 3]> (a) ar = Reshape (at, joined)
  o = MatMul (ar, wo) r = Add (e, o) logits = MatMul (r, wh)
}}"""
"""As optimum exports LLaMA: rotary positions, keys and values of two heads repeated for four. No mask."""


def standard_decoder(path: Path, text: str = STANDARD) -> Path:
    """Write a decoder in standard operators, and a folder `data` of 8 prompts and 8 steps beside it.

    Its keys have channels of two magnitudes. Caches of the samples are the model's own.
    """
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(text)
    shapes = {
        **{"words": (WORDS, WIDTH), "wq": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH), "wh": (WIDTH, WORDS)},
        **dict.fromkeys(("wk", "wv"), (WIDTH, GROUPS * HEAD)),
    }
    angles = np.tile(np.outer(np.arange(LONGEST), 1e4 ** (-np.arange(0, HEAD, 2) / HEAD)), 2)
    constants = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    constants["wk"] *= np.where(np.arange(GROUPS * HEAD) % (HEAD // 2) < 2, 6.0, 0.5)
    constants |= {"words": constants["words"] * np.sqrt(WORDS), "cos": np.cos(angles), "sin": np.sin(angles)}
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    folder = path.parent / "data"
    folder.mkdir()
    session = ort.InferenceSession(str(path))
    tokens, *names = (value.name for value in session.get_inputs())
    for number in range(8):
        ids = rng.integers(0, WORDS, (1, 12 + number))
        first = {tokens: ids[:, :-1], **{name: np.zeros((1, GROUPS, 0, HEAD), np.float32) for name in names}}
        presents = session.run(None, first)[1:]
        np.savez(folder / f"{2 * number:02}.npz", **first)
        step = {tokens: ids[:, -1:], **dict(zip(names, presents, strict=True))}
        np.savez(folder / f"{2 * number + 1:02}.npz", **step)
    return path


def merged_decoder(path: Path, source: Path) -> Path:
    """Write a decoder in standard operators as optimum merges two: in branches of an If, told by
    `use_cache_branch`, of which the one without a past gives new keys and values as they are."""
    model = onnx.load(source)
    graph, branches = model.graph, []
    for prefix in ("then_", "else_"):
        names = {name: prefix + name for node in graph.node for name in node.output}
        nodes = []
        for node in graph.node:
            if prefix == "else_" and node.name in ("keys", "values"):
                names[node.output[0]] = names[node.input[1]]
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = prefix + (node.name or node.output[0])
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names[name] for name in node.output]
            nodes.append(copy)
        values = [onnx.ValueInfoProto() for _ in graph.output]
        for value, output in zip(values, graph.output, strict=True):
            value.CopyFrom(output)
            value.name = names[output.name]
        branches.append(onnx.helper.make_graph(nodes, prefix + "branch", [], values))
    del graph.node[:]
    graph.input.append(onnx.helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1]))
    outputs, (then, other) = [value.name for value in graph.output], branches
    graph.node.append(
        onnx.helper.make_node("If", ["use_cache_branch"], outputs, then_branch=then, else_branch=other)
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    folder = path.parent / f"{path.stem}-data"
    folder.mkdir()
    for file in sorted((source.parent / "data").glob("*.npz")):
        arrays = dict(np.load(file))
        is_step = arrays["past_key_values.0.key"].shape[2] > 0
        np.savez(folder / file.name, **arrays, use_cache_branch=np.array([is_step]))
    return path
