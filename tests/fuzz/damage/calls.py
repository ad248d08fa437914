"""Families without a damaged file: values of options, and functions that raise or give nonsense."""

from __future__ import annotations

from functools import lru_cache

import click

from damage.base import DUMP, QUANTIZE, TUNE
from damage.cases import Base, Case, Draw, whole

NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1",
    "-0.0",
    "1e400",
    "1e308",
    "1e-400",
    "5000",
    "99999999999999999999",
    "",
    " ",
    "x",
    "1,5",
    "0x10",
    "1_0",
    "٣",
    "1e",
    "--",
    "2.5",
    "None",
    "9" * 5000,
)
WORDS = (
    "",
    " ",
    "x",
    "nan",
    "-",
    "--",
    "*",
    "[",
    "**",
    "\n",
    "\x1b[31mred",
    "ü",
    "a" * 5000,
    "../..",
    "/dev/null",
    "none",
    "%s",
    "percentile:nan",
    "percentile:101",
    "percentile:1e400",
    "kl:3",
    "mse:",
    "[!a",
    "conv",
    "Conv",
    "y",
    "os:system",
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "dump-profile": (*DUMP, "-o", "out.yaml"),
    "quantize": (*QUANTIZE, "-o", "out.onnx"),
    "evaluate": (
        "evaluate",
        "model.onnx",
        "int8.onnx",
        "--data",
        "cal",
        "--no-latency",
        "--labels",
        "labels.txt",
    ),
    "compare-layers": ("compare-layers", "model.onnx", "int8.onnx", "--data", "cal"),
    "diff": ("diff", "profile.yaml", "profile.yaml"),
    "sensitivity": ("sensitivity", "model.onnx", "--data", "cal", "--profile", "profile.yaml"),
    "tune": (*TUNE, "-o", "out.onnx"),
    "show": ("show", "profile.yaml"),
    "merge": ("merge", "profile.yaml", "-o", "out.yaml"),
    "targets": ("targets",),
    "schema": ("schema",),
}
SKIPPED = ("--scheduler", "--metric", "--data", "--holdout-data", "--version", "--help")
"""Those start other processes, or name code that is run; functions have a family of their own."""


@lru_cache
def _values() -> list[tuple[str, str, str]]:
    """Return each option of each command with each value that it is tried with."""
    from qprof_onnx.cli.main import main

    found = []
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            flag = option.opts[-1]
            if (
                not isinstance(option, click.Option)
                or option.is_flag
                or flag in SKIPPED
                or isinstance(option.type, click.Path)
            ):
                continue
            number = isinstance(option.type, click.types.FloatParamType | click.types.IntParamType)
            values = NUMBERS if number or flag == "--memory-limit" else WORDS
            found += [(name, flag, value) for value in values]
    return found


def options(base: Base, draw: Draw) -> Case:
    """An option with a value that is no number, too large, or no word that is known."""
    name, flag, value = draw.pick(_values())
    command = list(COMMANDS[name])
    if "--data" not in command and flag in ("--limit", "--threads", "--min-speedup"):
        command += ["--check-speed", "--data", "cal"] if name == "quantize" else []
    shown = value[:60] or "''"
    names = (
        flag,
        flag.lstrip("-").replace("-", "_"),
        *([shown] if value.strip() else []),
        flag.lstrip("-").replace("-", " "),
        *(["sample"] if flag == "--limit" else []),
    )
    outputs = ("out.yaml", "out.onnx", "out.onnx.data")
    return Case(
        "values of options",
        f"{flag} {value[:40]!r}",
        (*command, f"{flag}={value}"),
        names=names,
        outputs=outputs,
    )


GOOD = "np.ones((2, 1, 6, 6), np.float32)"
HEAD = """
import numpy as np

class Unshown(Exception):
    def __str__(self): return 1 / 0

def f():
"""
FUNCTIONS = {
    "raises": "raise ValueError('broken')",
    "raises with control characters": "raise ValueError('\\x1b[31m broken\\n\\n again')",
    "raises with a long text": "raise ValueError('x' * 100_000)",
    "raises without a text": "raise RuntimeError",
    "raises what is no Exception": "raise type('Odd', (BaseException,), {})('odd')",
    "raises in the middle": f"yield {{'x': {GOOD}}}; raise KeyError('middle')",
    "raises an error that cannot be shown": "raise Unshown()",
    "raises StopIteration": "raise StopIteration",
    "leaves": "import sys; sys.exit(0)",
    "leaves with 3": "import sys; sys.exit(3)",
    "gives nothing": "return []",
    "gives None": "return None",
    "gives a number": "return 3",
    "gives a text": "return 'abc'",
    "gives bytes": "return b'abc'",
    "gives a dict": f"return {{'x': {GOOD}}}",
    "gives a list of lists": "return [[1, 2], [3]]",
    "gives lists": "return [{'x': [1, 2]}]",
    "gives None in a dict": "return [{'x': None}]",
    "gives keys that are numbers": f"return [{{3: {GOOD}}}]",
    "gives another name": f"return [{{'z': {GOOD}}}]",
    "gives one too many": f"return [{{'x': {GOOD}, 'z': {GOOD}}}]",
    "gives float64": f"return [{{'x': {GOOD}.astype(float)}}]",
    "gives objects": "return [{'x': np.array([object()])}]",
    "gives a matrix": "return [{'x': np.matrix([[1.0]])}]",
    "gives a masked array": f"return [{{'x': np.ma.masked_array({GOOD})}}]",
    "gives a class": "return [type('A', (), {})]",
    "gives what raises when it is iterated": "return type('A', (), {'__iter__': lambda self: 1 / 0})()",
    "gives what has no end": f"import itertools; return itertools.repeat({{'x': {GOOD}}})",
    "gives no rows": f"return [{{'x': {GOOD}[:0]}}]",
    "gives NaN": f"return [{{'x': {GOOD} * np.nan}}]",
    "gives itself again": f"a = {GOOD}\n    for i in range(3):\n        a[:] = i\n        yield {{'x': a}}",
    "gives read-only arrays": f"a = {GOOD}; a.flags.writeable = False; return [{{'x': a}}]",
    "gives arrays turned round": f"return [{{'x': {GOOD}[::-1]}}]",
    "gives a huge view": "return [{'x': np.broadcast_to(np.float32(1), (1 << 20, 1, 6, 6))}]",
    "prints": f"print('noise'); return [{{'x': {GOOD}}}]",
}
MODULES = {
    "a module that raises": "raise ValueError('broken')",
    "a module with a syntax error": "def f(:",
    "a module that leaves": "import sys; sys.exit(3)",
    "a module without the function": "x = 3",
    "a function that is none": "f = 3",
    "a function with a parameter": "def f(a): return []",
    "a module that imports nothing that is there": "import nowhere_at_all",
    "a module with NUL": "\0",
    "a class": "class f:\n    def __iter__(self): return iter([])",
}
SOURCES = (
    "nowhere:f",
    "bad:",
    ":f",
    "bad:f:g",
    "bad:f.g",
    "bad:__name__",
    "os:getcwd",
    "bad.f:g",
    "a b:c",
    "bad:f()",
    "1:2",
)


def functions(base: Base, draw: Draw) -> Case:
    """module:function that raises, or gives what is no sample."""
    named = [(what, f"{HEAD}    {text}\n", "bad:f") for what, text in FUNCTIONS.items()]
    named += [(what, text, "bad:f") for what, text in MODULES.items()]
    named += [(f"source {source}", "def f(): return []", source) for source in SOURCES]
    what, text, source = draw.pick(named)
    command = ("dump-profile", "model.onnx", "--data", source, "-o", "out.yaml")
    if what == "gives what has no end":
        command = (*command, "--limit", "3")
    return Case(
        "module:function",
        what,
        command,
        {"bad.py": whole(text)},
        names=(source, "bad"),
        outputs=("out.yaml",),
        quotes=True,
    )
