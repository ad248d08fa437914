"""What a docstring or a page names as a file or folder of the checkout is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("profiles", "quantizer", "cli", "configs", "docs", "tests", "examples")
SOURCES = sorted(path for top in ("profiles", "quantizer", "cli") for path in (ROOT / top).rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "tests").rglob("*.md")])
PAGES += sorted((ROOT / "docs").rglob("*.md"))


def ticked(text: str) -> Iterator[str]:
    """Yield what stands in single backticks outside of blocks of code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)


def docstrings(path: Path) -> Iterator[str]:
    """Yield every docstring of a source file, those of constants included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def is_missing_file(name: str) -> bool:
    """Whether a name is written as a file or folder of the checkout and is not there."""
    place = re.split("#|::", name, maxsplit=1)[0]
    if not re.fullmatch(r"[\w.\-/*]+", place) or not place.startswith(tuple(f"{f}/" for f in FOLDERS)):
        return False
    return not (list(ROOT.glob(place)) if "*" in place else (ROOT / place).exists())


def test_every_file_that_is_named_is_there() -> None:
    texts = [(path, docstrings(path)) for path in SOURCES]
    texts += [(path, iter([path.read_text(encoding="utf-8")])) for path in PAGES]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, parts in texts
        for text in parts
        for name in ticked(text)
        if is_missing_file(name)
    }
    assert not missing


def test_a_file_that_is_gone_would_be_noticed() -> None:
    assert is_missing_file("quantizer/planner.py")
    assert not is_missing_file("quantizer/targets/config.py")
    assert not is_missing_file("out/profile.yaml")
