"""A plan from what another tool wrote: a quantized ONNX model, or a file of parameters."""

from __future__ import annotations

import os
from pathlib import Path

from ...profiles.base.errors import ConfigError
from ..model.loading.reading import read_model
from ..plan.plan import QuantPlan
from ..prepare.opening import open_prepared
from ..targets.loading import load_recipe
from ..targets.target import Recipe
from .completed_params import without_changed_constants
from .formats import formats_of, recognised
from .plan_of_params import plan_of_params, plan_of_source
from .quantized_models.source_of_model import source_of_model


def import_plan(
    source: str | os.PathLike[str],
    float_model: str | os.PathLike[str],
    recipe: Recipe | None = None,
) -> QuantPlan:
    """Return the plan that another tool followed when it quantized a model.

    Scales, zero points and the integers of the weights are those of the source, to the bit, and so is which
    nodes are quantized; what the target does not take stays float, with the reason. What could not be kept
    is in the notes of the plan.

    Args:
        source: a quantized ONNX model of any tool, or a file that holds parameters (`formats`).
        float_model: the float model that was quantized.
        recipe: settings and target; of the settings the target counts, and the form. None for the default.

    Raises:
        ModelError: a model cannot be read, or the source is no quantized form of the float model.
        ConfigError: the source is of no known format.
    """
    prepared, recipe = open_prepared(os.fspath(float_model)), recipe or load_recipe()
    where = os.fspath(source)
    if Path(where).suffix.lower() == ".onnx":
        loaded = read_model(where)
        producer = loaded.model.producer_name or "", loaded.model.producer_version or ""
        written_by = " ".join(part for part in producer if part)
        params = source_of_model(prepared.graph, loaded.model, Path(where).name, written_by)
        return plan_of_source(prepared.model, params, recipe)
    try:
        data = Path(where).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); correct the path") from None
    entry = recognised(data, "parameters")
    if entry is None:
        known = ", ".join(known.title for known in formats_of("parameters"))
        raise ConfigError(
            f"{where}: is neither an ONNX model (*.onnx) nor a file of parameters"
            f"{f' that is known ({known})' if known else ''}; give one of these"
        )
    params = entry.load().read(data, where)
    original = read_model(os.fspath(float_model)).model
    return plan_of_params(prepared.model, without_changed_constants(params, original, prepared.graph), recipe)
