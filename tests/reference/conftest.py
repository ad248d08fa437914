"""Fixtures of the reference implementations' tests: the vectors of Glow."""

from ..quantizer.conftest import equal_bins_profile, glow, profile_of

__all__ = ["equal_bins_profile", "glow", "profile_of"]
