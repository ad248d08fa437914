"""The settings of a calibration run for one model: the tensors that plans need, the channels to record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...profiles.runner.settings import RunSettings
from ..model.graph import Graph
from ..planning.needed_tensors import needed_tensors, weighted_channels


def settings_for(graph: Graph, settings: RunSettings, hidden: Collection[str] = ()) -> RunSettings:
    """Return the settings with names of tensors and axes of channels in place of the words for them.

    Args:
        graph: the prepared model.
        settings: of the run, checked.
        hidden: tensors whose values cannot be read.
    """
    if settings.tensors == "needed":
        settings = replace(settings, tensors=needed_tensors(graph, hidden))
    if settings.channels == "weighted-layers":
        settings = replace(settings, channels=weighted_channels(graph))
    return settings
