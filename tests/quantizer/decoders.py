"""A small decoder as onnxruntime-genai's builder lays it out: contrib operators, a cache, RMS norms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
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
