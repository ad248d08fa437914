"""Roles of the inputs of language models, by the names that exporters give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Role = Literal["ids", "attention_mask", "token_type_ids", "position_ids", "has_past", "text"]
"""What an input takes of a text; `text` is the text itself, `has_past` whether there were tokens before."""

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
}
"""What inputs are called by exporters: transformers, optimum, TensorFlow's models."""


def usual_role(name: str) -> Role | None:
    """Return the part of a text that an input of a usual name takes; None for another name.

    Args:
        name: of the input; a path before it, and what TensorFlow writes after a colon, do not count.
    """
    return USUAL_NAMES.get(name.rpartition("/")[2].partition(":")[0].lower())
