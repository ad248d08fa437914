"""Graphs that once failed, as ONNX text: the files of folder `graphs`.

Lines that begin with # are a YAML mapping: why it is kept, target, facts, settings, start_everywhere. Tensors
that are declared without values become random weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import yaml
from graph_builder import SAMPLES
from graph_check import Case

FOLDER = Path(__file__).resolve().parent / "graphs"
BATCH = 2


def kept_case(name: str) -> Case:
    """Return the case of one file."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    about = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("# ")))
    model = onnx.parser.parse_model("\n".join(line for line in lines if not line.startswith("#")))
    rng = np.random.default_rng(7)
    given = {node for n in model.graph.node for node in n.output} | {t.name for t in model.graph.initializer}
    for value in model.graph.value_info:
        if value.name not in given:
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            array = rng.standard_normal(shape) / max(1, np.prod(shape[1:])) ** 0.5
            model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), value.name))
    del model.graph.value_info[:]
    samples = []
    for _ in range(SAMPLES):
        sample = {}
        for value in model.graph.input:
            dims = [d.dim_value or BATCH for d in value.type.tensor_type.shape.dim]
            sample[value.name] = rng.standard_normal(dims).astype(np.float32)
        samples.append(sample)
    settings = {"min_output_sqnr": 0.0, **about.get("settings", {})}
    return Case(
        model,
        samples,
        settings,
        about["target"],
        about.get("start_everywhere", False),
        facts=about.get("facts", {}),
    )
