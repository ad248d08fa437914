"""Node data for Model Explorer: one value for each node, with colours.

The format is `GraphNodeData` of google-ai-edge/model-explorer (node_data_builder.py): values by the name of a
node's output tensor, and a gradient from the smallest to the largest; words have a colour each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ....profiles.base.atomic_files import write_atomically
from ..content import Report
from ..records import NodeRecord

VALUES = ("noise", "time", "sqnr", "kind")
"""What a node can be coloured by."""

DARK_IS_MORE = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#5d8fdb"})
DARK_IS_LESS = (
    {"stop": 0, "bgColor": "#d9776f"},
    {"stop": 0.5, "bgColor": "#f3ded0"},
    {"stop": 1, "bgColor": "#ffffff"},
)

KIND_COLOURS = {"float": "#f8ecd9", "weight-only": "#f3dfbd"}
INT8_COLOUR = "#cdeae8"


def node_data(report: Report, by: str = "noise") -> dict[str, Any]:
    """Return the node data of the nodes that have a value.

    Args:
        report: with nodes.
        by: "noise" (percent of the noise at the output with the lowest SQNR), "time" (predicted microseconds,
            as planned), "sqnr" (dB at the node's outputs, measured, else estimated) or "kind" (words).
    """
    sqnr = {r.tensor: r.estimated if r.measured is None else r.measured for r in report.tensor_noise}
    results: dict[str, dict[str, Any]] = {}
    for node in report.nodes:
        for output in node.outputs[:1] if by != "sqnr" else node.outputs:
            value = _value(node, output, by, sqnr)
            if value is not None:
                results[output] = {"value": value}
                if by == "kind":
                    results[output]["bgColor"] = KIND_COLOURS.get(node.kind, INT8_COLOUR)
    gradient = {"gradient": list(DARK_IS_LESS if by == "sqnr" else DARK_IS_MORE)}
    return {"results": results, **({} if by == "kind" else gradient)}


def _value(node: NodeRecord, output: str, by: str, sqnr: Mapping[str, float | None]) -> float | str | None:
    if by == "kind":
        return node.kind
    found = sqnr.get(output)
    value = {"noise": 100.0 * (node.noise or 0.0), "time": node.planned_us, "sqnr": found}[by]
    return None if value is None or abs(value) == float("inf") else float(f"{value:.4g}")


def write_node_data(report: Report, path: str | os.PathLike[str], by: str = "noise") -> None:
    """Write the node data of a report as JSON.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_atomically(path, json.dumps(node_data(report, by), indent=1) + "\n")
