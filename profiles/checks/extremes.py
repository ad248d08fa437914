"""The samples that made the smallest and the largest values of a tensor, whatever the order of the samples.

Of all samples those two are kept whose own smallest value is smallest, and those two whose own largest is
largest. Equal values are ordered by the digests of the samples, so that the choice does not depend on
order, threads, shards or passes; samples with equal data count as one. The two best of all samples are the
two best of those of its parts, so merging is exact, commutative and associative.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..base.names import natural_key

KEPT = 2
"""Samples that are kept for each end of a range."""


@dataclass(frozen=True)
class Extreme:
    """The smallest, or the largest, finite value that a tensor had in one sample.

    Attributes:
        value: exact.
        digest: of the sample's data, as 32 hexadecimal digits.
        name: of the sample, as messages call it; where several have the same data, the first in natural
            order. It depends on how the data are stored, so it is not compared.
    """

    value: float
    digest: str
    name: str = field(compare=False)


@dataclass(frozen=True)
class Extremes:
    """The samples with the most extreme values of a tensor.

    Attributes:
        lowest: up to `KEPT` of them, the smallest minimum first.
        highest: up to `KEPT` of them, the largest maximum first.
    """

    lowest: tuple[Extreme, ...] = ()
    highest: tuple[Extreme, ...] = ()

    def merged(self, other: Extremes) -> Extremes:
        """Return those of both sets of samples together."""
        return Extremes(best([*self.lowest, *other.lowest], 1.0), best([*self.highest, *other.highest], -1.0))


def merged_extremes(a: Extremes | None, b: Extremes | None) -> Extremes | None:
    """Return those of both; None where they are not known of one of them."""
    return None if a is None or b is None else a.merged(b)


def best(extremes: Iterable[Extreme], sign: float) -> tuple[Extreme, ...]:
    """Return the first `KEPT` extremes, one of each digest, by value times `sign`, then by digest."""
    found: dict[str, Extreme] = {}
    for extreme in extremes:
        other = found.get(extreme.digest)
        if other is None or _rank(extreme, sign) < _rank(other, sign):
            found[extreme.digest] = extreme
    return tuple(sorted(found.values(), key=lambda e: (sign * e.value, e.digest))[:KEPT])


def _rank(extreme: Extreme, sign: float) -> tuple[object, ...]:
    return sign * extreme.value, natural_key(extreme.name)
