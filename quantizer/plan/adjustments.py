"""What was adjusted in the float model: frozen records that a plan carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ChannelFactors:
    """The channels of one activation are divided by factors, and its readers' weights multiplied by them.

    The result of the model stays the same in real numbers.

    Attributes:
        axis: axis of the channels in the activation, counted from the front.
        divisors: one for each channel: a positive power of two, so that no float loses a bit.
        inserted: whether a Mul is put between the activation and those readers; else whoever makes the
            activation makes it divided.
    """

    axis: int
    divisors: tuple[float, ...]
    inserted: bool = False


@dataclass(frozen=True)
class WeightMoves:
    """The codes of one weight, by how far each is from the code nearest to the weight.

    Attributes:
        moves: one for each element, in row-major order, as int8.
        params: digest of the parameters that they were chosen for (`rounding.params_digest`).
    """

    moves: bytes
    params: str


@dataclass(frozen=True)
class Adjustments:
    """Everything that is changed in a prepared model before it is planned and written.

    Attributes:
        factors: by the name of the activation, in graph order.
        biases: node name -> what is added to the bias of each output channel when the node computes on
            codes, float32-exact.
        roundings: node name -> the codes of its weight when it is in codes, where they were chosen with
            samples.
    """

    factors: Mapping[str, ChannelFactors] = field(default_factory=dict)
    biases: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    roundings: Mapping[str, WeightMoves] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.factors or self.biases or self.roundings)


NONE = Adjustments()
"""Nothing is changed."""
