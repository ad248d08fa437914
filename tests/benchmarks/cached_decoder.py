"""What is asked of a decoder with a key/value cache: passages of texts, and runs of some new tokens each.

The caches that are fed come from the float model, so that every model is asked about the same past.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from record import Feed, session


@dataclass(frozen=True)
class CachedDecoder:
    """Inputs and outputs of a decoder, and how long its runs are.

    Attributes:
        tokens: name of the input of new tokens, int64 of shape (1, n).
        layers: each with a cache of keys and one of values, of shape (1, heads, past, width).
        heads, width: of a cache.
        places: positions that the model was trained for.
        new: new tokens of a run: the start of a text, a longer part, one token.
        mask: name of the input that is 1 for each token before and in a run, int64 of shape (1, n); "" for
            none.
    """

    tokens: str
    layers: int
    heads: int
    width: int
    places: int
    new: tuple[int, ...]
    mask: str = ""

    def cache_names(self, when: str) -> list[str]:
        """Return the names of the caches that are fed ("past") or given back ("present")."""
        return [f"{when}.{layer}.{part}" for layer in range(self.layers) for part in ("key", "value")]

    def nothing(self) -> list[np.ndarray]:
        """Return the caches of an empty past."""
        return [np.zeros((1, self.heads, 0, self.width), np.float32)] * (2 * self.layers)

    def passages(
        self, rng: np.random.Generator, texts: Sequence[np.ndarray], count: int
    ) -> Iterator[np.ndarray]:
        """Yield passages of one more token than there are places; longer texts are drawn more often."""
        sizes = np.array([len(text) - self.places for text in texts], np.float64)
        for place in rng.choice(len(texts), count, p=sizes / sizes.sum()):
            start = int(rng.integers(len(texts[place]) - self.places))
            yield texts[place][start : start + self.places + 1]

    def runs(
        self, seed: int, file: Path, texts: Sequence[np.ndarray], count: int, mixture: Sequence[float]
    ) -> Iterator[tuple[Feed, list[int]]]:
        """Yield runs from the start of a passage, or inside of it with the float model's caches.

        Args:
            seed: of what is drawn.
            file: the float model.
            texts: to draw from, int64, each longer than there are places.
            count: number of runs.
            mixture: how often each number of `new` tokens.
        """
        rng, opened = np.random.default_rng(seed), session(file, 1)
        for passage in self.passages(rng, texts, count):
            new = int(rng.choice(self.new, p=mixture))
            before = 0 if new == self.new[0] else int(rng.integers(self.places // 3, self.places - new))
            past = (
                opened.run(None, self._feed(passage[:before], self.nothing()))[1:]
                if before
                else self.nothing()
            )
            answers = passage[before + 1 : before + new + 1]
            yield self._feed(passage[before : before + new], past), answers.tolist()

    def _feed(self, tokens: np.ndarray, past: Sequence[np.ndarray]) -> Feed:
        feed = {self.tokens: tokens[None], **dict(zip(self.cache_names("past"), past, strict=True))}
        if self.mask:
            feed[self.mask] = np.ones((1, past[0].shape[2] + tokens.size), np.int64)
        return feed
