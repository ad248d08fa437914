"""A tabular network trained here: numbers and names that describe a function -> which package it is from.

The functions are those of Python's library and of six installed packages; no file is in two splits. The names
(of arguments, of what is called, of a decorator) go in as buckets; the numbers are counts, as they are.
"""

from __future__ import annotations

import ast
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from record import Feed, by_name, classified, package_folder, split_remainders
from trained import trained_model

PACKAGES = ("std", "numpy", "scipy", "sklearn", "skimage", "sympy", "onnx")
BUCKETS, BATCH = 512, 32
COUNTED = (
    *(ast.If, ast.For, ast.While, ast.Return, ast.Assign, ast.AugAssign, ast.Raise, ast.Try, ast.With),
    *(ast.Call, ast.Attribute, ast.Subscript, ast.Compare, ast.BinOp, ast.BoolOp, ast.Lambda, ast.ListComp),
    *(ast.Dict, ast.List, ast.Tuple, ast.JoinedStr, ast.Constant, ast.Name, ast.Starred, ast.Assert),
)
PARTS = split_remainders(14, 15, 17, 20)
FILES = 300  # of one package, at most


def _bucket(name: str) -> int:
    return 1 + zlib.crc32(name.encode()) % (BUCKETS - 1) if name else 0


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _names(function: ast.FunctionDef, nodes: Sequence[ast.AST]) -> list[str]:
    """Return eight names that describe a function, empty where there is none."""
    arguments = [argument.arg for argument in function.args.args]
    calls = [_called(node) for node in nodes if isinstance(node, ast.Call)]
    read = Counter(node.id for node in nodes if isinstance(node, ast.Name)).most_common(1)
    decorators = [ast.unparse(decorator).split("(")[0] for decorator in function.decorator_list]
    body = [type(statement).__name__ for statement in function.body]
    parts = [arguments[:1], arguments[1:2], arguments[2:3], calls[:1], calls[-1:], decorators[:1]]
    return [*(part[0] if part else "" for part in parts), read[0][0] if read else "", body[-1]]


def _numbers(function: ast.FunctionDef, nodes: Sequence[ast.AST]) -> list[float]:
    """Return counts and sizes of a function."""
    names = [node.id for node in nodes if isinstance(node, ast.Name)] or [""]
    document = ast.get_docstring(function) or ""
    arguments = function.args
    return [
        *(sum(isinstance(node, kind) for node in nodes) for kind in COUNTED),
        len(nodes),
        (function.end_lineno or function.lineno) - function.lineno + 1,
        function.col_offset,
        len(arguments.args),
        len(arguments.defaults),
        len(arguments.kwonlyargs),
        len(document),
        document.count("\n"),
        len(function.name),
        float(np.mean([len(name) for name in names])),
        float(np.mean([name != name.lower() for name in names])),
        function.name.count("_"),
    ]


@cache
def _rows(part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the functions of a split: numbers, float32 (n, m); names, int64 (n, k); packages, int64 (n,)."""
    numbers, names, labels = [], [], []
    for label, package in enumerate(PACKAGES):
        root = Path(sysconfig.get_path("stdlib")) if package == "std" else package_folder(package)
        files = [file for top in ("*.py", "*/*.py", "*/*/*.py") for file in sorted(root.glob(top))]
        files = [f for f in files if not {"site-packages", "test", "tests"} & set(f.relative_to(root).parts)]
        for file in files[:: max(1, len(files) // FILES)]:
            if zlib.crc32(f"{package}/{file.relative_to(root).as_posix()}".encode()) % 20 not in PARTS[part]:
                continue
            for function in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(function, ast.FunctionDef) and len(function.body) >= 2:
                    nodes = list(ast.walk(function))
                    numbers.append(_numbers(function, nodes))
                    names.append([_bucket(name) for name in _names(function, nodes)])
                    labels.append(label)
    return np.array(numbers, np.float32), np.array(names), np.array(labels)


def samples(rng: np.random.Generator, part: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return functions, each once: numbers, names and packages."""
    numbers, names, labels = _rows(part)
    chosen = rng.permutation(len(labels))[:count]
    return numbers[chosen], names[chosen], labels[chosen]


def _batches(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[int]]]:
    columns = samples(np.random.default_rng(seed), part, count * BATCH)
    for first in range(0, count * BATCH, BATCH):
        numbers, names, labels = (column[first : first + BATCH] for column in columns)
        yield {"numbers": numbers, "names": names}, labels.tolist()


MODEL = trained_model(
    name="code-table",
    data="Python's library and packages",
    kind="tabular network, embeddings",
    task="120 batches of 32 functions of 7 packages: share whose package is told right from a table's row",
    samples=_batches,
    splits=by_name(341, 24, 60, 120),
    count=classified,
)
