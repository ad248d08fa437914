"""What stays float, and why: the nodes of a few models after `qprof quantize` with its defaults.

    python tests/benchmarks/run.py float-nodes minilm --work DIR

The reasons are the plan's own, as `qprof quantize` prints them; beside each are the operators that it is
about.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from frame import Row, Rows, Stage, table
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from workbench import Workbench


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield the counts of nodes, then a row for each reason."""
    bench = Workbench(name, given.work)
    with tempfile.TemporaryDirectory() as folder:
        result = write_quantized(bench.path, bench.profile(), Path(folder, "model.onnx"))
    types = {node.name or "": node.op_type for node in open_prepared(bench.path).graph.nodes}
    yield {"counts": dict(result.summary.counts)}
    for group in result.summary.floats:
        operators = Counter(
            types.get(node, "Mul")  # what adjustments have added
            for node, entry in result.plan.nodes.items()
            if entry.kind is Kind.FLOAT and entry.float_reason.code is group.code
        )
        told = ", ".join(f"{op} {n}" if n > 1 else op for op, n in operators.most_common())
        yield {"nodes": group.nodes, "operators": told, "why": group.reason}


def page(rows: Rows) -> str:
    parts = []
    for name, (whole, *groups) in rows.items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in whole["counts"].items())
        cells = [[group["nodes"], group["operators"], group["why"]] for group in groups]
        parts += [f"## {name}", f"{sum(whole['counts'].values())} nodes: {kinds}."]
        parts.append(table(["float nodes", "operators", "why"], cells))
    return "\n\n".join(parts)


STAGE = Stage(rows, {"FLOAT_NODES.md": page}, ("ppocr-det", "minilm", "nudenet"))
