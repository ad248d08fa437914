"""Roles of the inputs of language models, by the names that exporters give them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

Role = Literal[
    "ids", "attention_mask", "token_type_ids", "position_ids", "has_past", "text",
    "target_ids", "target_mask", "next_ids",
]  # fmt: skip
"""Contents of an input for a text; `text` is the text itself, `has_past` whether there were tokens before.
For a pair of an encoder and a decoder, `target_ids` are the tokens of the answer for the decoder,
`target_mask` is their mask, and `next_ids` the token after them, for a decoder that continues.
"""

OF_TARGET: Collection[Role] = ("target_ids", "target_mask", "next_ids")
"""What inputs take of the second text of a pair, which a tokenizer reads by itself."""

USUAL_NAMES: Mapping[str, Role] = {
    "input_ids": "ids",
    "input_word_ids": "ids",
    "ids": "ids",
    "tokens": "ids",
    "token_ids": "ids",
    "attention_mask": "attention_mask",
    "input_mask": "attention_mask",
    "mask": "attention_mask",
    "token_type_ids": "token_type_ids",
    "segment_ids": "token_type_ids",
    "input_type_ids": "token_type_ids",
    "position_ids": "position_ids",
    "use_cache_branch": "has_past",
    "encoder_input_ids": "ids",
    "encoder_attention_mask": "attention_mask",
    "decoder_input_ids": "target_ids",
    "decoder_attention_mask": "target_mask",
    "decoder_with_past_input_ids": "next_ids",
}
"""What inputs are called by transformers, optimum, TensorFlow's models, and by files of theirs joined."""


def usual_role(name: str) -> Role | None:
    """Return the role of an input with a usual name; a path and TensorFlow's :0 are ignored."""
    return USUAL_NAMES.get(name.rpartition("/")[2].partition(":")[0].lower())
