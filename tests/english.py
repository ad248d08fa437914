"""Counts habits of translated English in pages, messages and docstrings, beside three libraries' docstrings.

    python tests/english.py            counts for each thousand sentences
    python tests/english.py --list H2  each sentence of ours with this habit, and its file

The habits are patterns: some hits are right (`where` of a place). The rates of the libraries tell how many.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PEERS = ("onnx_ir", "onnxruntime", "rich")
MADE = ("api.md", "changelog.md", "decisions.md")
"""Pages of docs/ that are made of docstrings or of another page."""
HABITS = {
    "H1 begins with Of": r"^Of\b",
    "H2 what": r"\bwhat\b",
    "H3 where": r"\bwhere\b",
    "H4 figure for figure": r"\d ?(?:%|ms|s|dB|points)? for \d",
    "H5 whatever, otherwise": r"\b(?:whatever|otherwise)\b",
    "H6 of which, in which": r"\b(?:of|in|to|by|from|for) which\b",
    "H7 alone, none": r"\b(?:alone|is none|are none|has none|have none)\b",
    "H8 is said, is told": r"\b(?:is|are|was|were|be) (?:said|told|asked|noted|taken|held against)\b",
    "H9 such a, as it is": r"\b(?:such an?|as it is|as they are|all the same|of its own|so many)\b",
}
SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n[*#|-] ?|\|")


def sentences(text: str) -> list[str]:
    """Return the sentences and table cells of a text that have three words or more."""
    pieces = (" ".join(piece.strip("*#|` ").split()) for piece in SENTENCE.split(text))
    return [piece for piece in pieces if piece.count(" ") >= 2]


def docstrings(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the docstrings of all modules in a folder."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield path, ast.get_docstring(node) or ""


def messages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the strings of a folder that are no docstrings, with figures and names for what they format."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inside = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
                yield path, "".join(parts)
            elif isinstance(node, ast.Constant) and id(node) not in statements | inside:
                yield path, node.value if isinstance(node.value, str) else ""


def pages() -> Iterator[tuple[Path, str]]:
    """Yield the prose of each page: no code, no links' targets, no printed tables."""
    written = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in MADE]
    for path in sorted([*ROOT.glob("*.md"), *written]):
        text = re.sub(
            r"```.*?```|<!-- table.*?<!-- end -->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        yield path, re.sub(r"\]\([^)]*\)|`[^`]*`", "X", text)


def places() -> dict[str, list[tuple[Path, str]]]:
    """Return the sentences of each kind of text, with their files."""
    ours = [ROOT / name for name in ("quantizer", "profiles", "cli")]
    kinds = {
        "pages": pages(),
        "messages": (each for folder in ours for each in messages(folder)),
        "docstrings": (each for folder in ours for each in docstrings(folder)),
    }
    for name in PEERS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            kinds[name] = docstrings(Path(spec.origin).parent)
    return {
        kind: [(path, each) for path, text in texts for each in sentences(text)]
        for kind, texts in kinds.items()
    }


def main() -> None:
    """Print the counts, or the sentences of one habit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", metavar="HABIT", help="as H2: print the sentences")
    asked = parser.parse_args().list
    found = places()
    if asked:
        (pattern,) = (pattern for habit, pattern in HABITS.items() if habit.split()[0] == asked)
        for kind in ("pages", "messages", "docstrings"):
            for path, sentence in found[kind]:
                if re.search(pattern, sentence):
                    print(f"{path.relative_to(ROOT)}: {sentence}")
        return
    print(f"{'habits in 1,000 sentences':26}", *(f"{kind:>12}" for kind in found))
    for habit, pattern in HABITS.items():
        rates = (
            1000 * sum(bool(re.search(pattern, each)) for _, each in texts) / len(texts)
            for texts in found.values()
        )
        print(f"{habit:26}", *(f"{rate:12.1f}" for rate in rates))
    print(f"{'sentences':26}", *(f"{len(texts):12,}" for texts in found.values()))


if __name__ == "__main__":
    main()
