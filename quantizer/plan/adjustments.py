"""What was adjusted in the float model: frozen records that a plan carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EqualizationScales:
    """The channels of one activation are divided by scales, and its readers' weights multiplied by them.

    In float the result of the model stays the same.

    Attributes:
        axis: axis of the channels in the activation, counted from the front.
        scales: one for each channel: a positive power of two, so that no float loses a bit.
        inserted: whether a Mul is put between the activation and those readers; else what computes the
            activation computes it divided.
    """

    axis: int
    scales: tuple[float, ...]
    inserted: bool = False


@dataclass(frozen=True)
class RoundingOffsets:
    """How one weight is rounded: how far each quantized value is from the nearest.

    Attributes:
        offsets: one for each element, in row-major order, as int8.
        params: digest of the parameters that they were chosen for
            (`rounding.quantized_weights.params_digest`).
    """

    offsets: bytes
    params: str


@dataclass(frozen=True)
class Adjustments:
    """Everything that is changed in a prepared model before it is planned and written.

    Attributes:
        equalization: by the name of the activation, in graph order.
        biases: node name -> what is added to the bias of each output channel when the node is quantized,
            float32-exact.
        roundings: node name -> how its weight is rounded when it is quantized, where that is not to the
            nearest.
        padded_channels: activation -> how many channels it has in the quantized model, where that is more
            than in the float one (see `channel_groups`).
    """

    equalization: Mapping[str, EqualizationScales] = field(default_factory=dict)
    biases: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    roundings: Mapping[str, RoundingOffsets] = field(default_factory=dict)
    padded_channels: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.equalization or self.biases or self.roundings or self.padded_channels)


NONE = Adjustments()
"""Nothing is changed."""
