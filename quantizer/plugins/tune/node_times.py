"""What onnxruntime really executes of a model, and how long each of its nodes takes."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from ....profiles.base.output_files import temporary_folder
from ...evaluation.runtimes import Inputs, open_session, run, session_options

MIN_RUNS, MAX_RUNS = 6, 40
"""Runs of each model on each sample: at least, even when the time is up, and at most."""

_KERNEL_EVENT = "_kernel_time"
"""What the profiler appends to the name of a node."""


@dataclass(frozen=True)
class ExecutedNode:
    """A node of the graph as onnxruntime has optimised it.

    Attributes:
        name: its name, made from those of the nodes that were fused; "" for some that onnxruntime added.
        op_type: such as QLinearConv, or ReorderInput.
        inputs, outputs: names of tensors, constants included.
        microseconds: of one run: the least over the runs on each sample, averaged over the samples.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    microseconds: float


def node_times(
    models: Mapping[str, Path], samples: Sequence[Inputs], *, threads: int = 1, seconds: float = 3.0
) -> tuple[tuple[ExecutedNode, ...], ...]:
    """Run models in turns on the same samples and return the nodes that each executes, with times.

    There is at least one sample. No new round starts after `seconds`, once there were MIN_RUNS. Raises
    ModelError if onnxruntime cannot load or run a model.
    """
    with temporary_folder() as folder:
        sessions = [
            _profiling_session(path, Path(folder, str(number)), name, threads)
            for number, (name, path) in enumerate(models.items())
        ]
        outputs = [[output.name for output in session.get_outputs()] for session in sessions]
        start, rounds = time.perf_counter(), 0
        while rounds < MIN_RUNS or (rounds < MAX_RUNS and time.perf_counter() - start < seconds):
            for sample in samples:
                for name, session, wanted in zip(models, sessions, outputs, strict=True):
                    run(session, wanted, sample, name)
            rounds += 1
        executed = []
        for number, session in enumerate(sessions):
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
            times, nameless = _kernel_times(events, len(samples))
            graph = onnx.load(Path(folder, f"{number}.onnx"), load_external_data=False).graph
            executed.append(
                tuple(
                    ExecutedNode(
                        node.name,
                        node.op_type,
                        tuple(node.input),
                        tuple(node.output),
                        (times.get(node.name) if node.name else next(nameless[node.op_type], None)) or 0.0,
                    )
                    for node in graph.node
                )
            )
        return tuple(executed)


def _profiling_session(path: Path, prefix: Path, name: str, threads: int) -> ort.InferenceSession:
    """Return a session that writes the optimised model, and how long each of its nodes takes."""
    options = session_options(threads)
    options.enable_profiling = True
    options.profile_file_prefix = str(prefix)
    options.optimized_model_filepath = f"{prefix}.onnx"
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", f"{prefix.name}.data"),
        ("session.optimized_model_external_initializers_min_size_in_bytes", "1024"),
    ):
        options.add_session_config_entry(key, value)
    return open_session(str(path), name, options=options)


def _kernel_times(
    events: Sequence[Mapping[str, Any]], samples: int
) -> tuple[dict[str, float], Mapping[str, Iterator[float]]]:
    """Return microseconds by name; and by operator, in order of execution, those of nodes without a name.

    The profiler calls a node without a name by its operator and index. Nodes in subgraphs of an If or a Loop
    are there under their own names too, and are not used.
    """
    runs: dict[str, list[float]] = defaultdict(list)
    nameless: dict[str, str] = {}
    for event in events:
        if event.get("cat") == "Node" and str(event["name"]).endswith(_KERNEL_EVENT):
            name = str(event["name"]).removesuffix(_KERNEL_EVENT)
            runs[name].append(float(event["dur"]))
            op = str(event["args"]["op_name"])
            if re.fullmatch(rf"{re.escape(op)}_{event['args']['node_index']}", name):
                nameless[name] = op
    # The mean over the samples of the least time on each; the samples take turns.
    times = {
        name: sum(min(durations[first::samples]) for first in range(samples)) / samples
        for name, durations in runs.items()
    }
    by_operator: dict[str, list[float]] = defaultdict(list)
    for name, op in nameless.items():
        by_operator[op].append(times[name])
    return times, defaultdict(
        lambda: iter(()), {op: iter(durations) for op, durations in by_operator.items()}
    )
