"""The tables of rewrites, by the word for each in targets and plans."""

from __future__ import annotations

from collections.abc import Mapping

from ...plan.rewrites import SUB_PIXEL, FloatRewrite, Rewrite
from .functions import is_written_out, works_instead, write_operators
from .phases import sub_pixel_refusal
from .scan import scan_refusal, write_scan
from .softmax import along_inner_axis, softmax_works, write_softmax
from .sub_pixel import write_convolution
from .unoptimized import is_fused, is_quantized_after, write_as_sum, write_before_clip

REWRITES: Mapping[str, Rewrite] = {
    "scan": (scan_refusal, write_scan),
    SUB_PIXEL: (sub_pixel_refusal, write_convolution),
}
"""Rewrites of quantized nodes."""

FLOAT_REWRITES: Mapping[str, FloatRewrite] = {
    "clip": FloatRewrite(write_before_clip, is_needed=is_quantized_after),
    "sum": FloatRewrite(write_as_sum, is_needed=is_fused),
    "exp-sum": FloatRewrite(write_softmax, fits=along_inner_axis, works=softmax_works),
    "written-out": FloatRewrite(write_operators, fits=is_written_out, works=works_instead),
}
"""Rewrites of float nodes."""
