"""The words of the field, one for one thing: words that readers would have to learn from us are refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OLD_WORDS = {ROOT / "quantizer" / "plan" / "format_1.py"}
"""What translates the words of old files has to hold them."""
SOURCES = sorted(
    path
    for top in ("profiles", "quantizer", "cli")
    for path in (ROOT / top).rglob("*.py")
    if path not in OLD_WORDS
)
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "AGENTS.md")]
PAGES += [ROOT / "quantizer" / "OPERATORS.md", *sorted((ROOT / "configs").glob("*.yaml"))]
PAGES += sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "docs" / "llms.txt"])
REFUSED = {
    r"reckon\w*": "estimated",
    r"even(?:ed|s)? out": "equalized, cross-layer equalization",
    r"(?:in|on|of|into|from|as|to) codes": "quantized, integer values",
    r"drown\w*|audible|loud\w*": "below the SQNR limit, high-noise",
    r"spelling\w*|spelled": "implementation, notation",
    r"twins?": "unsigned equivalent, counterpart, reference implementation",
    r"feeds?": "sample",
    r"schemes?(?!\))": "schema",
    r"islands?": "float region",
    r"taken? back to float": "falls back to float",
    r"promises?": "quality target",
    r"winners?": "range set by",
    r"signal over noise": "SQNR",
    r"real numbers?": "float values",
    r"at run time made|made at run time": "computed at run time",
    r"whoever|so many": "a plain sentence",
}
"""Word -> what the field says."""


def texts(path: Path) -> Iterator[str]:
    """Yield what people read of a file: a page, or the strings of a source file and its names."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield from (line.partition("#")[2] for line in text.splitlines() if "#" in line)


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_words_are_those_of_the_field(path: Path) -> None:
    used = {
        match[0]: instead
        for text in texts(path)
        for word, instead in REFUSED.items()
        for match in re.finditer(rf"\b(?:{word})\b", text, re.IGNORECASE)
    }
    assert not used
