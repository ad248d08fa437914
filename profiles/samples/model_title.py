"""What messages call a model: the file that the user gave, or the name of its graph."""

from __future__ import annotations

import os

import onnx_ir as ir

_FILE = "qprof.file"
"""Key in `Graph.meta`, which is not written into files and is copied with the graph."""


def set_title(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Let messages call a model by its file."""
    model.graph.meta[_FILE] = os.fspath(path)


def title_of(model: ir.Model) -> str:
    """Return what messages call a model: its file, where that is known."""
    file = model.graph.meta.get(_FILE)
    if file:
        return str(file)
    return f"model '{model.graph.name}'" if model.graph.name else "the model"
