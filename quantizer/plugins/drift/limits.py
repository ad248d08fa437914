"""The record of limits of `diff`; imports are quick, for its help is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ....profiles.base.arguments import check_record
from ....profiles.base.options import option


@dataclass(frozen=True)
class DriftLimits:
    """Limits for every tensor; None for no limit. The measures: see `measures`.

    They apply to the measures themselves: the elements of a sample depend on each other, so a profile gives
    no confidence interval. With few samples, the distances are too large by chance, and clipping, range
    growth and the fraction of non-finite elements too small. Compare profiles of about as many samples, and
    of so many that two halves of the old data meet the limits.

    Attributes:
        max_clipping: Gate: clipping rate above the baseline. In Python: a share of the elements, 0 to 1.
        max_range_growth: Gate: range growth. In Python: a factor, at least 1.
        max_js_distance: Gate: Jensen-Shannon distance, 0 to 1.
        max_non_finite: Gate: share of NaN and Inf. In Python: of the elements, 0 to 1.
    """

    max_clipping: Annotated[float | None, option("Quality", metavar="SHARE", least=0)] = None
    max_range_growth: Annotated[float | None, option("Quality", metavar="FACTOR", least=1)] = None
    max_js_distance: Annotated[float | None, option("Quality", metavar="D", least=0)] = None
    max_non_finite: Annotated[float | None, option("Quality", metavar="SHARE", least=0)] = None

    def __post_init__(self) -> None:
        check_record(self)
