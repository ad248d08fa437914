"""The table of rewrites."""

from __future__ import annotations

from collections.abc import Mapping

from ...plan.rewrites import Rewrite
from .cell_functions import cell_refusal
from .phases import sub_pixel_refusal
from .scan import write_scan
from .sub_pixel import write_convolution

REWRITES: Mapping[str, Rewrite] = {
    "scan": Rewrite(cell_refusal, write_scan),
    "sub-pixel": Rewrite(sub_pixel_refusal, write_convolution),
}
"""By the word for each in targets and plans."""
