"""What stays float, and why: the nodes of a few models after `qprof quantize` with its defaults.

    python tests/benchmarks/float_nodes.py --work DIR [--models ppocr-det,minilm,nudenet] [--write]

Profiles are those that real_models.py has made in DIR. The reasons are the plan's own, as `qprof quantize`
prints them; beside each are the operators that it is about. --write puts the tables into FLOAT_NODES.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import models
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.results import QuantizeResult
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.prepare.prepare import open_prepared

HERE = Path(__file__).resolve().parent
HEAD = """# What stays float, and why

Written by float_nodes.py: three models quantized with the defaults, target onnxruntime-x86. The reasons are
those that `qprof quantize` prints and that a saved plan has at each node. Nodes that are float because what
they read is float name the operators that this float comes from; those have reasons of their own.
"""


def section(name: str, result: QuantizeResult, types: dict[str, str]) -> str:
    """Return the table of one model.

    Args:
        name: the model.
        result: of `quantize`.
        types: operator of each node; nodes that adjustments have added are not among them.
    """
    counts = result.summary.counts
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    lines = [f"## {name}", "", f"{sum(counts.values())} nodes: {kinds}.", ""]
    lines += ["| float nodes | operators | why |", "|---|---|---|"]
    for group in result.summary.floats:
        operators = Counter(
            types.get(node, "Mul")
            for node, entry in result.plan.nodes.items()
            if entry.kind is Kind.FLOAT and entry.float_reason.code is group.code
        )
        types_of_nodes = ", ".join(f"{op} {n}" if n > 1 else op for op, n in operators.most_common())
        lines.append(f"| {group.nodes} | {types_of_nodes} | {group.reason} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", default="ppocr-det,minilm,nudenet")
    parser.add_argument("--write", action="store_true", help="write FLOAT_NODES.md")
    given = parser.parse_args()
    sections = []
    for name in given.models.split(","):
        path = models.load(name).path(given.work / name)
        with tempfile.TemporaryDirectory() as folder:
            profile = given.work / name / "built" / "qprof.yaml"
            result = write_quantized(path, profile, Path(folder, "model.onnx"))
        types = {node.name or "": node.op_type for node in open_prepared(path).graph.nodes}
        sections.append(section(name, result, types))
        print(sections[-1], flush=True)
    if given.write:
        (HERE / "FLOAT_NODES.md").write_text("\n".join([HEAD, *sections]), encoding="utf-8")


if __name__ == "__main__":
    main()
