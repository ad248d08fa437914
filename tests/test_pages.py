"""What a docstring or a page names in backticks is there: files, modules, and what they define."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOPS = ("profiles", "quantizer", "cli")
SOURCES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "quantizer" / "OPERATORS.md", ROOT / "tests/benchmarks/README.md"])
PAGES += sorted((ROOT / "docs").rglob("*.md"))
FOLDERS = ("profiles", "quantizer", "cli", "configs", "tests", "examples")
ENDINGS = (
    "py",
    "pyi",
    "c",
    "md",
    "yaml",
    "yml",
    "json",
    "toml",
    "txt",
    "onnx",
    "data",
    "npz",
    "npy",
    "pb",
    "whl",
    "xml",
    "html",
)
OTHERS = (
    *(
        "builtins",
        "collections",
        "dataclasses",
        "functools",
        "importlib",
        "json",
        "logging",
        "math",
        "os",
        "sys",
    ),
    *(
        "np",
        "numpy",
        "onnx",
        "ir",
        "onnx_ir",
        "onnxruntime",
        "ort",
        "yaml",
        "click",
        "scipy",
        "torch",
        "distributed",
    ),
    *(
        "com",
        "ai",
        "params",
        "time",
        "qprof",
        "Node",
        "dask",
        "msgspec",
        "networkx",
        "lazy_loader",
        "setuptools",
        "openvino",
        "nncf",
    ),
    *("CalibMethod", "QuantGranularity", "ScaleType", "advanced_parameters"),
)
"""First parts of dotted names that are other projects' modules and classes, or operator domains."""
MADE = ("out/", "build/")
"""Folders that commands of the pages make."""


@cache
def definitions() -> dict[str, set[str]]:
    """Return every name that is defined somewhere -> the dotted modules, without the root, that define it."""
    names: dict[str, set[str]] = {}
    for path in SOURCES:
        module = module_of(path)
        for part in range(len(module)):
            names.setdefault(module[part], set()).add(".".join(module[: part + 1]))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in defined(node):
                names.setdefault(name, set()).add(".".join(module))
    return names


def module_of(path: Path) -> tuple[str, ...]:
    """Return the dotted name of a source file, without the import root."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def defined(node: ast.AST) -> list[str]:
    """Return the names that one statement defines: functions, classes, constants, fields, parameters."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return []


def ticked(text: str) -> Iterator[str]:
    """Yield what stands in single backticks outside of blocks of code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)


def docstrings(path: Path) -> Iterator[str]:
    """Yield every docstring of a source file, those of constants included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        value = (
            node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        )
        if isinstance(value, str):
            yield value


def is_missing_file(name: str) -> bool:
    """Whether a name is written as a file or folder of the checkout and is not there."""
    place = re.split("#|::", name, maxsplit=1)[0]
    if not re.fullmatch(r"[\w.\-/*]+", place) or place.startswith(MADE):
        return False
    if not place.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
        return False
    return not (list(ROOT.glob(place)) if "*" in place else (ROOT / place).exists())


def is_missing_module(name: str) -> bool:
    """Whether a dotted name such as `plan.store` or `QuantConfig.keep_float` leads to nothing here."""
    parts = name.removesuffix("()").removeprefix("qprof_onnx.").split(".")
    if len(parts) < 2 or not all(re.fullmatch(r"[A-Za-z_]\w*", part) for part in parts):
        return False
    if parts[-1] in ENDINGS:
        return parts[-1] == "py" and not list(ROOT.rglob(name))
    if parts[0] in OTHERS:
        return False
    known = definitions()
    if parts[0][0].isupper():  # a class, and one of its members
        return parts[0] not in known or parts[1] not in known
    places = {place for places in known.values() for place in places}
    return not any(
        f".{place}".endswith("." + ".".join(parts[:cut])) and set(parts[cut:]) <= set(known)
        for place in places
        for cut in range(1, len(parts) + 1)
    )


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_module_that_is_named_is_there(path: Path) -> None:
    texts = docstrings(path) if path.suffix == ".py" else [path.read_text(encoding="utf-8")]
    names = {name for text in texts for name in ticked(text)}
    assert not {name for name in names if is_missing_file(name) or is_missing_module(name)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_docstring_tells_to_see_is_defined_somewhere(path: Path) -> None:
    text = "\n".join(docstrings(path))
    names = re.findall(r"(?:[Ss]ee|as in|name of) `([A-Za-z_]\w*)`", text)
    assert not [name for name in names if name not in definitions()]


def test_a_name_that_is_gone_would_be_noticed() -> None:
    assert is_missing_file("quantizer/planner.py")
    assert is_missing_module("targets.config.FORMZ")
    assert is_missing_module("adjust.factors")
    assert not is_missing_file("quantizer/targets/config.py")
    assert not is_missing_module("targets.config.FORMS")
    assert not is_missing_module("onnx.checker")
