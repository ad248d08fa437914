"""Size and time of a quantized model beside the float one, and the words that all commands use. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ...profiles.base.findings import Code, Finding
from ...profiles.base.presentation import deciding_digits, size_text
from .latency import EVEN_RATIO, Latency, times_as_fast


@dataclass(frozen=True)
class Cost:
    """The size and time of a quantized model beside the float one; sizes include external data."""

    float_bytes: int
    quantized_bytes: int
    latency: Latency | None = None
    predicted: float | None = None  # times as fast as float, by the times that the plan was made with
    printed: float | None = None  # the same on this processor, which decides nothing

    @property
    def is_slower(self) -> bool:
        """Whether float is faster in three of four rounds."""
        return self.latency is not None and self.latency.speedup_high < 1.0

    @property
    def is_larger(self) -> bool:
        """Whether the quantized model is the larger file."""
        return self.quantized_bytes > self.float_bytes

    @property
    def speedup(self) -> float | None:
        """Times as fast as float: as measured, or as predicted if the rounds differ too much."""
        return self.predicted if self.latency is None or self.latency.is_unclear else self.latency.speedup

    @property
    def gain(self) -> float:
        """The fraction of size, or of time if known, that the quantized model saves: the larger one."""
        faster = 1.0 - 1.0 / max(self.speedup, 1e-9) if self.speedup is not None else -inf
        return max(1.0 - self.quantized_bytes / self.float_bytes, faster)

    @property
    def is_even(self) -> bool:
        """Whether neither is faster, up to EVEN_RATIO, by the rounds and the prediction."""
        latency, known = self.latency, [] if self.predicted is None else [self.predicted]
        known += [latency.speedup] if latency is not None and not latency.is_even else []
        return all(1.0 / EVEN_RATIO <= speedup <= EVEN_RATIO for speedup in known)

    @property
    def change(self) -> str:
        """The change of size, as in "3.17 times smaller"."""
        before, after = self.float_bytes, self.quantized_bytes
        if before == after:
            return "the same size"
        ratio = before / max(after, 1)
        larger = max(ratio, 1.0 / max(ratio, 1e-9))
        return f"{deciding_digits(larger, 1.0, (2, 2))[0]} times {'smaller' if ratio >= 1.0 else 'larger'}"

    @property
    def size(self) -> str:
        """Both sizes and their change."""
        return f"{size_text(self.float_bytes)} -> {size_text(self.quantized_bytes)}, {self.change}"

    @property
    def speed(self) -> str:
        """The speed in a few words; "" if it is not known."""
        if self.latency is not None and not self.latency.is_unclear:
            return times_as_fast(self.latency.speedup)
        return "" if self.printed is None else f"{times_as_fast(self.printed)}, predicted"

    def larger(self, subject: str = "", remedy: str = "") -> Finding:
        """Return the finding that the quantized model is larger."""
        sizes = f"larger than float: {size_text(self.quantized_bytes)}, float {size_text(self.float_bytes)}"
        figures = {"quantized_bytes": self.quantized_bytes, "float_bytes": self.float_bytes}
        sentence = f"{subject}: {sizes}" if subject else sizes
        return Finding(Code.LARGER_THAN_FLOAT, sentence, subject, figures, remedy)

    def speed_line(self, source: str = "", *, floats_speed: bool = False) -> str:
        """Return the measured or predicted speed; `source` names its source if that is not int8."""
        if floats_speed:
            return "that of float, whose arithmetic it has"
        if self.latency is not None:
            return f"{self.latency.text(self.printed)}{source}"
        known = "" if self.printed is None else f"; predicted {times_as_fast(self.printed)} as float"
        return f"not measured{known}{source}"
