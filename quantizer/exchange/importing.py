"""A plan from what another tool wrote: a quantized ONNX model, or a file of parameters."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ...profiles.base.errors import ConfigError
from ..model.loading.reading import read_model
from ..plan.plan import QuantPlan
from ..prepare.opening import open_prepared
from ..targets.target import Recipe
from .completed_params import with_axes, with_folded_constants
from .formats import formats_of, recognised
from .parameters.entries import read_with
from .plan_of_params import plan_of_params, plan_of_source
from .quantized_models.source_of_model import source_of_model
from .values import ForeignParams


def _of_no_format(document: dict[str, object]) -> ForeignParams:
    return ForeignParams({}, "")


def plan_of_file(
    source: str | os.PathLike[str],
    float_model: str | os.PathLike[str],
    recipe: Recipe,
    *,
    keep_form: bool = False,
) -> QuantPlan:
    """Return the plan that another tool followed when it quantized a model.

    Scales, zero points and the integers of the weights are those of the source, to the bit, and so is which
    nodes are quantized; what the target does not take stays float, with the reason. What could not be kept
    is in the notes of the plan.

    Args:
        source: a quantized ONNX model of any tool, or a file that holds parameters (`formats`).
        float_model: the float model that was quantized.
        recipe: settings and target; of the settings the target counts, and the form.
        keep_form: write QLinear operators where the source has such and the target reads them.

    Raises:
        ModelError: a model cannot be read, or the source is no quantized form of the float model.
        ConfigError: the source is of no known format.
    """
    prepared, where = open_prepared(os.fspath(float_model)), os.fspath(source)
    if Path(where).suffix.lower() == ".onnx":
        loaded = read_model(where)
        producer = loaded.model.producer_name or "", loaded.model.producer_version or ""
        written_by = " ".join(part for part in producer if part)
        params = source_of_model(prepared.graph, loaded.model, Path(where).name, written_by)
        if keep_form and params.has_operators and "qoperator" in recipe.target.forms:
            recipe = replace(recipe, config=replace(recipe.config, form="qoperator"))
        return plan_of_source(prepared.model, params, recipe)
    try:
        data = Path(where).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); correct the path") from None
    entry = recognised(data, "parameters")
    if entry is None:
        raise _not_parameters(data, where)
    read, graph = with_axes(entry.load().read(data, where), prepared.graph), prepared.graph
    folded = with_folded_constants(read, read_model(float_model).model, graph)
    return plan_of_params(prepared.model, folded, recipe)


def _not_parameters(data: bytes, where: str) -> ConfigError:
    """Return the error that says what to do with a file that holds no parameters."""
    ranges = recognised(data, "ranges")
    if ranges is not None:
        return ConfigError(
            f"{where}: is {ranges.title}, which holds ranges; give it to 'qprof quantize --profile', or make "
            "a profile of it with 'qprof import-profile'"
        )
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        read_with(_of_no_format, data, where)  # what is wrong with the JSON, if that is what is wrong
    known = ", ".join(known.name for known in formats_of("parameters") if known.is_read)
    return ConfigError(
        f"{where}: is neither an ONNX model (*.onnx) nor a file of parameters ({known}); give one of these, "
        "see 'qprof export --help'"
    )
