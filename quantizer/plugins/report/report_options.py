"""The record of options of `report`; imports are quick, for its help is made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ....profiles.base.options import option
from ...api.options import Judge

if TYPE_CHECKING:
    from ...prepare.prepare import ProfileLike


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Judge):
    """The options of `report` besides models, plan, profile and samples.

    Attributes:
        measure_layers: Time each layer in float and int8 too, by onnxruntime's profiler.
        history: profiles of newer data, the oldest first: how they drift.
    """

    measure_layers: Annotated[bool, option("Speed")] = False
    history: Collection[ProfileLike] = ()
