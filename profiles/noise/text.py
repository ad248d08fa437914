"""Measured noise as it stands in a profile's file.

Each sample has one text of numbers for each of three figures: a number for each tensor of the profile, in its
order, `-` where nothing was measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite

from ..base.strict_yaml import MalformedError, block, entry, fields, integer_at, list_at, mapping_at, text_at
from .measurements import SampleNoise, TensorNoise

FIGURES = ("signal", "activation_noise", "weight_noise")
NOTHING = TensorNoise(None, None, None)


def noise_text(samples: Sequence[SampleNoise], count: int, names: Sequence[str]) -> str:
    """Return the lines of the entry `noise`.

    Args:
        samples: in order of their digests.
        count: how many there were to be at most.
        names: of the tensors of the profile, in order.
    """
    lines = ["noise:\n", block({"samples": count}, 2), "  measured:\n" if samples else "  measured: {}\n"]
    for sample in samples:
        noises = [sample.tensors.get(name, NOTHING) for name in names]
        figures = {key: " ".join(_word(getattr(noise, key)) for noise in noises) for key in FIGURES}
        values = block({**figures, "changed_shapes": list(sample.changed_shapes)}, 6)
        lines.append(entry(sample.digest, "\n" + values.rstrip("\n"), 4))
    return "".join(lines)


def _word(figure: float | None) -> str:
    return "-" if figure is None else repr(figure).removesuffix(".0")


def noise_at(value: object, names: Sequence[str]) -> tuple[int, tuple[SampleNoise, ...]]:
    """Return the number of samples asked for and the noise that an entry `noise` describes.

    Raises:
        MalformedError: it does not describe any.
    """
    entries = fields(value, "noise", ("samples", "measured"))
    count = integer_at(entries["samples"], "noise: samples", 0)
    measured = mapping_at(entries["measured"], "noise: measured")
    samples = tuple(_sample(digest, entry, names) for digest, entry in measured.items())
    digests = [sample.digest for sample in samples]
    if digests != sorted(digests) or len(digests) > count:
        raise MalformedError(f"noise: measured must hold at most {count} samples, in order of their digests")
    return count, samples


def _sample(digest: str, value: object, names: Sequence[str]) -> SampleNoise:
    where = f"noise: {digest[:40]}"
    if not re.fullmatch("[0-9a-f]{32}", digest):
        raise MalformedError(f"{where}: is not 32 hexadecimal digits")
    entries = fields(value, where, (*FIGURES, "changed_shapes"))
    columns = [_figures(entries[key], len(names), f"{where}: {key}") for key in FIGURES]
    noises = (TensorNoise(*row) for row in zip(*columns, strict=True))
    tensors = {name: noise for name, noise in zip(names, noises, strict=True) if noise != NOTHING}
    listed = list_at(entries["changed_shapes"], f"{where}: changed_shapes")
    changed = tuple(text_at(name, f"{where}: changed_shapes") for name in listed)
    if unknown := sorted(set(changed) - set(names)):
        raise MalformedError(f"{where}: changed_shapes names '{unknown[0]}', which is no tensor here")
    return SampleNoise(digest, tensors, changed)


def _figures(value: object, count: int, where: str) -> list[float | None]:
    words = text_at(value, where).split()
    if len(words) != count:
        raise MalformedError(f"{where} has {len(words)} numbers for {count} tensors")
    return [None if word == "-" else _figure(word, where) for word in words]


def _figure(word: str, where: str) -> float:
    if not re.fullmatch(r"[0-9]+(?:[.][0-9]+)?(?:e[-+]?[0-9]{1,3})?", word) or not isfinite(float(word)):
        raise MalformedError(f"{where}: '{word[:40]}' is not a mean square")
    return float(word)
