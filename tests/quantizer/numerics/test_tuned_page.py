"""The table of tuned constants."""

from __future__ import annotations

from .tuned_page import ROOT, page


def test_the_table_of_tuned_constants_is_what_the_source_says() -> None:
    assert (ROOT / "TUNED.md").read_text(encoding="utf-8") == page(), "print the page again (CONTRIBUTING.md)"
