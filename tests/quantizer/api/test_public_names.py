"""`import qprof_onnx as qprof`: every name is there, typed, and costs nothing until it is used."""

from __future__ import annotations

import ast
import inspect
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
import qprof_onnx as qprof

STUB = Path(qprof.__file__).with_suffix(".pyi")
HEAVY = {"numpy", "onnx", "onnx_ir", "onnxruntime", "yaml"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, qprof_onnx; heavy = {HEAVY} & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("said", [None, "0"])
def test_onnxruntime_collects_no_telemetry_unless_the_user_said_a_word(said: str | None) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {} if said is None else {"ORT_DISABLE_TELEMETRY": said}
    code = "import qprof_onnx.cli.main, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == (said or "1")


def test_every_name_of_the_stub_is_there() -> None:
    assert sorted(dir(qprof)) == sorted(qprof.__all__)
    assert not [name for name in qprof.__all__ if getattr(qprof, name, None) is None]


def test_the_same_object_comes_back_after_its_module_was_imported() -> None:
    before = qprof.instrument
    import qprof_onnx.quantizer.api.profiling  # noqa: F401

    assert qprof.instrument is before
    assert callable(qprof.instrument)


def test_no_name_equals_a_package_under_the_root() -> None:
    assert not set(qprof.__all__) & {"cli", "configs", "profiles", "quantizer"}


def test_help_has_every_function_with_its_arguments() -> None:
    text = pydoc.plain(pydoc.render_doc(qprof))
    functions = [name for name in qprof.__all__ if inspect.isfunction(getattr(qprof, name))]
    assert {"profile", "quantize", "evaluate", "tune", "merge", "diff"} <= set(functions)
    assert not [name for name in functions if f"\n    {name}(" not in text]


def test_every_public_function_says_what_each_argument_is() -> None:
    for name in (
        "profile",
        "quantize",
        "evaluate",
        "card",
        "verify",
        "compare_layers",
        "tune",
        "merge",
        "diff",
        "explain",
        "report",
        "join",
        "split",
    ):
        function = getattr(qprof, name)
        assert function.__doc__ is not None
        text = inspect.cleandoc(function.__doc__)  # Python 3.13 takes the indentation away
        missing = [p for p in inspect.signature(function).parameters if f"\n    {p}:" not in text]
        assert not missing, f"{name}: {missing}"
        assert len(inspect.signature(function).parameters) <= 8


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="quantise"):
        _ = qprof.quantise
    with pytest.raises(AttributeError, match=r"Did you mean 'profile'\?"):
        _ = qprof.dump_profile


def test_the_stub_holds_imports_and_nothing_else() -> None:
    body = ast.parse(STUB.read_text(encoding="utf-8")).body[1:]
    assert all(isinstance(node, ast.ImportFrom) and node.level == 1 for node in body)
