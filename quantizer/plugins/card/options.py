"""How far a figure may differ from that of a card. It imports nothing slow, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ....profiles.base.arguments import check_record
from ....profiles.base.options import option


@dataclass(frozen=True)
class Slack:
    """How much a figure may differ from that of a card, or be worse than on an earlier card.

    Attributes:
        score: Score by the metric or accuracy.
        sqnr: SQNR of each output. In Python: in dB.
        size: Size of the quantized model. In Python: in percent; only for two cards.
        speedup: As measured. In Python: in percent; it differs between two runs of the same model.

    Raises:
        ConfigError: a number is below 0, or not finite.
    """

    score: Annotated[float, option("Files", metavar="points", least=0)] = 0.1
    sqnr: Annotated[float, option("Files", metavar="dB", least=0)] = 0.5
    size: Annotated[float, option("Files", metavar="%", least=0)] = 1.0
    speedup: Annotated[float, option("Files", metavar="%", least=0)] = 15.0

    def __post_init__(self) -> None:
        check_record(self)
