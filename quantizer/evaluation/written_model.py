"""A quantized model checked against its target, loaded and run once before it appears."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import ModelError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.output_files import FileBatch
from ...profiles.runtime.providers import RUNTIME_ERRORS, disable_prepacking, first_line
from ..model.external_data import has_few_bit_floats
from ..model.saving import save_model
from ..model.unread_types import UNREAD
from ..plan.plan import QuantPlan
from ..targets.conformance import check_conformity
from ..targets.loading import load_recipe
from ..targets.machine import runs_here
from ..targets.packaged import target_names
from ..targets.target import Recipe
from .runtimes import open_session, session_options


def check_target(model: ir.Model, plan: QuantPlan, recipe: Recipe | None, where: str) -> tuple[Finding, ...]:
    """Check a written model against its target, if that is a packaged target."""
    if recipe is None:
        recipe = load_recipe(plan.config.target) if plan.config.target in target_names() else None
    return () if recipe is None else check_conformity(model, recipe.target, f"{where} (not written)")


def write_checked(
    model: ir.Model,
    output: str | Path,
    original: Path,
    elements: Mapping[str, float],
    *,
    target: str,
    external: bool,
    batch: FileBatch,
    file_bytes: bytes | None = None,
) -> tuple[Path, int, tuple[Finding, ...]]:
    """Write a model, load it in onnxruntime and run it once, before it appears under its name.

    Returns its temporary path, its bytes with external data, and findings on skipped checks. A model with
    `file_bytes` already ran on samples. ModelError if onnxruntime rejects it.
    """
    temporary = save_model(model, output, external, batch, file_bytes)
    name = f"{output} (not written, quantized from {original})"
    size = batch.size(temporary)
    finding = None
    if file_bytes is None:
        finding = load_and_run(temporary, size, original, name, elements, target=target)
    return temporary, size, () if finding is None else (finding,)


def load_and_run(
    file: Path, size: int, original: Path, name: str, elements: Mapping[str, float], *, target: str
) -> Finding | None:
    """Load a model in onnxruntime and run it once; a large model only with `elements`, sizes of inputs.

    Returns a finding if it could not be checked; raises ModelError if onnxruntime refuses it.
    """
    if size <= MAX_RUN_BYTES or elements:
        session = open_session(_loadable(file), name, dequantized=not runs_here(target))
        return smoke_run(session, lambda: open_session(str(original), str(original)), name, elements)
    if has_few_bit_floats(_loadable(file), UNREAD):
        sentence = (
            "it was not loaded: onnxruntime has no kernel for its weights, and converts them to float32"
        )
        return Finding(Code.NOT_TEST_RUN, sentence, figures={"bytes": size}, remedy=EVALUATE)
    options = session_options(1)
    disable_prepacking(options)
    open_session(_loadable(file), name, options=options)
    sentence = (
        "it was loaded and not run: a run needs additional memory of the size of its "
        f"{size / 1e9:.1f} GB of weights"
    )
    return Finding(Code.NOT_TEST_RUN, sentence, figures={"bytes": size}, remedy=EVALUATE)


MAX_RUN_BYTES = 512 << 20
"""Bytes of a model that is run once, profile or not. The weights of a larger one onnxruntime would lay out
anew in memory, or be slow (1.1 billion weights of 4 bits: 0.8 GB, or 10 s for a word); it is loaded, which
maps them from the file."""


EVALUATE = "'qprof evaluate' runs it on samples"

NOT_RUN = Finding(
    Code.NOT_TEST_RUN,
    "it was loaded and not test-run: no inputs could be generated that the float model accepts",
    remedy=EVALUATE,
)
"""Finding on a model that was written without a run; dropped if samples are run afterwards."""


def _loadable(file: Path) -> str | bytes:
    """Return the path of a model, or its bytes if the path is not UTF-8, which onnxruntime requires."""
    try:
        str(file).encode("utf-8")
    except UnicodeEncodeError:
        return file.read_bytes()
    return str(file)


# Smoke run: one run of a model that was just written, on generated inputs --------------------------------

FREE_SIZE = 8
"""Size of the free dimensions of an input that the profile does not have; the batch is 1."""

_NUMPY: Mapping[str, np.dtype[Any]] = {
    **{"float16": np.dtype("float16"), "float": np.dtype("float32"), "double": np.dtype("float64")},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": np.dtype("bool"),
}


def smoke_run(
    session: ort.InferenceSession,
    original: Callable[[], ort.InferenceSession],
    name: str,
    elements: Mapping[str, float],
) -> Finding | None:
    """Run a model once; return a finding if the original model does not run on the generated inputs either.

    ModelError if only this one fails. `elements` are the numbers of elements of a sample in each input.
    """
    inputs = _generated_inputs(session, elements)
    if inputs is None:
        return NOT_RUN
    message = _run_error(session, inputs)
    if not message:
        return None
    if _run_error(original(), inputs):
        return NOT_RUN
    raise ModelError(
        f"{name}: onnxruntime runs the float model and not this one: {message}; "
        "keep the node that it names float with --keep-float, or choose another form"
    )


def _run_error(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> str:
    """Return why a run fails, "" when it does not."""
    options = ort.RunOptions()
    options.log_severity_level = 4
    try:
        session.run(None, dict(inputs), options)
    except RUNTIME_ERRORS as error:
        return first_line(error)
    return ""


def _generated_inputs(session: ort.InferenceSession, elements: Mapping[str, float]) -> dict[str, Any] | None:
    """Return floats between -1 and 1 and integers of 1 for each input; None if one cannot be made up."""
    arrays = {}
    for value in session.get_inputs():
        dtype = _NUMPY.get(value.type.removeprefix("tensor(").removesuffix(")"))
        if dtype is None or value.shape is None:
            return None
        shape = [dim if isinstance(dim, int) else None for dim in value.shape]
        free, size = shape[1:].count(None), FREE_SIZE
        if free and value.name in elements:  # the size that gives a row the profiled number of elements
            fixed = math.prod(dim for dim in shape if dim)
            size = max(1, round((elements[value.name] / fixed) ** (1.0 / free)))
        dims = [dim if dim is not None else (size if place else 1) for place, dim in enumerate(shape)]
        # An input that does not fit into memory, or has more than numpy's 64 dimensions, cannot be tried.
        try:
            is_float = dtype.kind == "f"
            values = np.random.default_rng(0).uniform(-1.0, 1.0, dims) if is_float else np.ones(dims)
        except (MemoryError, ValueError):
            return None
        arrays[value.name] = values.astype(dtype)
    return arrays
