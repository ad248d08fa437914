"""Files are written in one place, and printed from one place: what else could do so is listed here."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for top in ("profiles", "quantizer", "cli") for path in (ROOT / top).rglob("*.py"))

WRITERS = {
    "profiles/base/output_files.py": "the one place; opens pipes and devices",
    "cli/console.py": "opens the null device",
    "quantizer/model/saving.py": "writes models into the temporary files that it gives",
    "profiles/records/check_samples.py": "into memory: the content of an archive",
    "quantizer/plugins/cluster/cluster.py": "a temporary folder: the model that came over the network",
    "profiles/samples/objects.py": "a temporary file: items that can be read once only",
    "quantizer/adjustments/second_moments.py": "a temporary folder: what a slice hands to the next",
    "profiles/runtime/external_weights.py": "a temporary folder: a model for onnxruntime or workers",
    "profiles/runtime/session.py": "a temporary folder: the model beside such weights",
    "quantizer/api/sources.py": "a temporary folder: labels of Python as a file",
    "quantizer/api/held_out.py": "a temporary folder: the labels of the held-out samples",
    "quantizer/model/files.py": "a temporary folder: a model of Python as a file",
}
"""Modules that write files, and why they may: all others write through the first."""
PRINTERS = {"cli/console.py": "the one place", "cli/entry.py": "before that can be imported"}

METHODS = {"write_text", "write_bytes", "tofile", "hardlink_to", "symlink_to"}
FUNCTIONS = {
    "os": {"replace", "rename", "link", "symlink", "open"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move"},
    "np": {"save", "savez", "savez_compressed", "savetxt"},
    "onnx": {"save", "save_model"},
    "ir": {"save"},
}
"""Names that write files, of any object and of these modules."""


@cache
def calls(path: Path) -> list[ast.Call]:
    """Return each call in a source file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def writes(call: ast.Call) -> bool:
    """Return whether a call can write a file."""
    name, owner = named(call)
    if name == "open" and owner != "os":
        modes = [*call.args[:2], *(k.value for k in call.keywords if k.arg == "mode")]
        return any(isinstance(m, ast.Constant) and bool(set("wax+") & set(str(m.value))) for m in modes)
    if name in ("replace", "rename") and owner != "os":  # those of a path have one argument
        return isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords
    return name in METHODS or name in FUNCTIONS.get(owner, ())


def edits(path: Path, call: ast.Call) -> bool:
    """Return whether a call named `replace` is one of an object of ours: there are no paths in its module."""
    return named(call)[0] == "replace" and "pathlib" not in path.read_text(encoding="utf-8")


def test_one_place_makes_sessions_of_onnxruntime() -> None:
    """There its wrapper is told not to print, and custom operators are known."""
    makers = [
        path.relative_to(ROOT).as_posix()
        for room in ("cli", "profiles", "quantizer")
        for path in sorted((ROOT / room).rglob("*.py"))
        if re.search(
            r"\b(ort|onnxruntime)\.(InferenceSession|SessionOptions)\(", path.read_text(encoding="utf-8")
        )
    ]
    assert makers == ["profiles/runtime/providers.py"]


def prints(call: ast.Call) -> bool:
    """Return whether a call prints; what rich draws is made of escaped texts."""
    name, owner = named(call)
    if name == "print":
        return isinstance(call.func, ast.Name)
    return (owner == "click" and name in ("echo", "secho", "style")) or (
        name == "write" and owner in ("stdout", "stderr")
    )


def named(call: ast.Call) -> tuple[str, str]:
    """Return the name of what is called, and of what it is called on; "" where there is none."""
    if isinstance(call.func, ast.Name):
        return call.func.id, ""
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        return call.func.attr, getattr(owner, "id", getattr(owner, "attr", ""))
    return "", ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open(path, 'wb')", True),
        ("path.open(mode='a')", True),
        ("open(path)", False),
        ("open(path, 'rb')", False),
        ("path.write_text(text)", True),
        ("os.replace(a, b)", True),
        ("a.replace(b)", True),
        ("text.replace('a', 'b')", False),
        ("replace(record, name=1)", False),
        ("np.save(path, array)", True),
        ("profile.save(path)", False),
    ],
)
def test_a_call_that_writes_is_seen(text: str, found: bool) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert writes(call) == found


def test_files_are_written_in_one_place() -> None:
    others = {path for path in SOURCES if path.relative_to(ROOT).as_posix() not in WRITERS}
    found = [(path, call) for path in others for call in calls(path) if writes(call)]
    assert not [(path.name, call.lineno) for path, call in found if not edits(path, call)]


def test_results_and_messages_are_printed_in_one_place() -> None:
    others = {path for path in SOURCES if path.relative_to(ROOT).as_posix() not in PRINTERS}
    assert not [(path.name, call.lineno) for path in others for call in calls(path) if prints(call)]
