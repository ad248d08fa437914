"""onnxruntime as the profiler uses it: one graph, optimised once; its exceptions become errors of qprof.

Plain inference fuses operators and stores feature maps in blocks of channels, and both make it fast. So the
model is optimised as usual, with the observed tensors as outputs, and the optimised graph is kept. Where
onnxruntime reorders a blocked tensor only to make it an output, the blocked tensor is read instead: it holds
the same elements, and observers do not depend on their order.

Every operator computes on one thread, and several samples run at the same time. So no value depends on the
number of threads, and the cores do not wait for each other at the end of each operator.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import DataError, ModelError
from ..base.output_files import temporary_folder
from ..samples.samples import title_of
from ..samples.values import Sample
from .external_weights import constants, save_beside, save_with_weights, weight_bytes
from .providers import (
    CPU,
    RUNTIME_ERRORS,
    disable_prepacking,
    first_line,
    load_refusal,
    loaded_libraries,
    new_session,
    new_session_options,
)

# Graphs as onnxruntime writes them, which are not always graphs that it, or onnx_ir, reads.


def read_graph(path: Path) -> ir.Model:
    """Return a model that onnxruntime wrote; maps get no type, because onnx_ir has no map type.

    Tensors of subgraphs get unique names: onnxruntime 1.32 names them per graph, and then rejects its own
    file.
    """
    proto = onnx.load_model(path, load_external_data=False)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if has_map(value.type):
            value.ClearField("type")
    model = ir.from_proto(proto)
    taken = set[str]()
    for graph in model.graphs():  # the main graph first
        own = (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs))
        names = {value.name for value in own if value.name}
        for value in own:
            if value.name in taken:
                value.name = next(name for i in count() if (name := f"{value.name}_{i}") not in taken | names)
                names.add(value.name)
        taken |= names
    ir.external_data.set_base_dir(model.graph, path.parent)
    return model


def has_map(kind: onnx.TypeProto) -> bool:
    """Return whether a type is a map, or contains one; onnx_ir does not have them."""
    match kind.WhichOneof("value"):
        case "sequence_type":
            return has_map(kind.sequence_type.elem_type)
        case "optional_type":
            return has_map(kind.optional_type.elem_type)
        case name:
            return bool(name == "map_type")


# One run of a session on one sample.

Array = npt.NDArray[Any]
Output = Array | list[Array]
"""An output of a run: an array, or a list of arrays for a sequence."""


def run_sample(session: ort.InferenceSession, fetched: Sequence[str], sample: Sample) -> dict[str, Output]:
    """Return the named outputs for one sample, in onnxruntime's own memory; DataError if the model fails."""
    if not fetched:  # for onnxruntime an empty list means all outputs
        return {}
    try:
        arrays = {name: _ort_input(array) for name, array in sample.arrays.items()}
        return dict(zip(fetched, session.run(list(fetched), arrays), strict=True))
    except RUNTIME_ERRORS as error:
        raise DataError(
            f"sample {sample.name}: the model fails on it: {first_line(error)}; "
            "compare its shapes and values with the inputs that the model expects"
        ) from error


def _ort_input(array: npt.NDArray[Any]) -> Any:
    """Return an array as onnxruntime takes it; for bfloat16, which is not a type of numpy, its bits."""
    if array.dtype.name != "bfloat16":
        return array
    bits = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(ir.DataType.BFLOAT16))


# Where nobody has set logging up, Python prints warnings on stderr; what onnx_ir warns of is checked here, or
# harmless.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())

LARGE_BYTES = 1 << 30
"""Models with more bytes of weights are not saved a second time, optimised, unless outputs run by parts."""

OPTIMISATION = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
"""How far onnxruntime may rewrite the graph before it is profiled: as in plain inference."""

_BLOCKING = ("Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
"""Operators whose inputs onnxruntime reorders into blocks of channels."""

_BLOCKED_CHANNELS = 16
"""Blocks hold 8 or 16 channels; a multiple of this many is not padded."""


@dataclass(frozen=True, eq=False)
class OptimisedGraph:
    """The graph that onnxruntime runs, and the value of it that holds each output of the original model.

    Weights may be in a temporary `folder`; `file` is a saved graph with exactly these values as outputs.
    """

    model: ir.Model
    folder: Path
    sources: Mapping[str, str]
    provider: str
    level: ort.GraphOptimizationLevel
    title: str
    file: str | None = None


@contextmanager
def optimised(
    model: ir.Model,
    outputs: Sequence[str],
    provider: str = CPU,
    split: bool = False,
    ordered: Container[str | None] = (),
) -> Iterator[OptimisedGraph]:
    """Yield the graph that runs `model`, optimised for the CPU.

    Other providers may compile parts into something that cannot be saved, so they get the model itself; so
    does the CPU if nothing can be in blocks of channels, or if weights are large, unless some
    outputs at a time are run (`split`). Outputs in `ordered` must not be read in blocks of channels.
    """
    with temporary_folder() as place:
        folder = Path(place)
        same = {name: name for name in outputs}
        blocks = any(node.op_type in _BLOCKING for node in model.graph.all_nodes())
        if provider != CPU or (not split and (not blocks or weight_bytes(model) > LARGE_BYTES)):
            yield OptimisedGraph(model, folder, same, provider, OPTIMISATION, title_of(model))
            return
        written = folder / "optimised.onnx"
        options = _options(OPTIMISATION, model)
        options.optimized_model_filepath = str(written)
        disable_prepacking(options)  # nothing will be run
        entry = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(f"{entry}file_name", "optimised.bin")
        options.add_session_config_entry(f"{entry}min_size_in_bytes", "1024")
        _session(_source(model, folder), options, provider, title_of(model))
        graph = read_graph(written)
        sources = same | {name: source for name, source in _blocked(graph).items() if name not in ordered}
        file = None
        if not split:
            _set_outputs(graph, [sources[name] for name in outputs])
            file = _source(graph, folder)
        level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        yield OptimisedGraph(graph, folder, sources, provider, level, title_of(model), file)


def _blocked(model: ir.Model) -> dict[str, str]:
    """Return the outputs that only reorder a blocked tensor, each with the name of that tensor."""
    blocked = {}
    for output in model.graph.outputs:
        node = output.producer()
        if node is None or (node.domain, node.op_type) != ("com.microsoft.nchwc", "ReorderOutput"):
            continue
        channels = node.attributes.get_int("channels", 1)
        if channels % _BLOCKED_CHANNELS == 0 and not node.attributes.get_int("channels_last", 0):
            assert node.inputs[0] is not None
            blocked[str(output.name)] = str(node.inputs[0].name)
    return blocked


@cache
def block_channels() -> int:
    """Return the number of channels in onnxruntime's blocks on this processor, measured on a feature map."""
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, 16, 1, 2]))
    node = ir.Node("com.microsoft.nchwc", "ReorderInput", [value])
    node.outputs[0].name = "y"
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    imports = {"": 13, "com.microsoft.nchwc": 1}
    graph = ir.Graph([value], node.outputs, nodes=[node], name="blocks", opset_imports=imports)
    model = ir.Model(graph, ir_version=8)
    with temporary_folder() as folder:
        options = _options(ort.GraphOptimizationLevel.ORT_DISABLE_ALL, model)
        session = _session(_source(model, Path(folder)), options, CPU, "blocks of channels")
        (blocks,) = session.run(None, {"x": np.arange(32, dtype=np.float32).reshape(1, 16, 1, 2)})
    return int(np.flatnonzero(blocks.reshape(-1) == 1.0)[0])  # the second position of the first channel


def plain_session(model: ir.Model, folder: Path) -> ort.InferenceSession:
    """Return a session that runs a model unchanged, on one thread of the CPU; `folder` must exist as long."""
    return _session(_source(model, folder), _options(OPTIMISATION, model), CPU, title_of(model))


def session_for(graph: OptimisedGraph, outputs: Sequence[str]) -> ort.InferenceSession:
    """Return a session whose outputs are the values for these outputs, for several threads."""
    file = graph.file
    if file is None or set(outputs) != set(graph.sources):
        model = graph.model.clone()
        _set_outputs(model, [graph.sources[name] for name in outputs])
        file = _source(model, graph.folder)
    options = _options(graph.level, graph.model)
    return _session(file, options, graph.provider, graph.title)


def _set_outputs(model: ir.Model, names: Sequence[str]) -> None:
    """Give the model only these outputs; remove reorderings of blocks that are not used any more."""
    values = {v.name: v for v in model.graph.inputs} | dict(model.graph.initializers)
    values |= {v.name: v for node in model.graph for v in node.outputs if v.name}
    before = list(model.graph.outputs)
    if names:
        model.graph.outputs[:] = [values[name] for name in dict.fromkeys(names)]
    for value in before:
        node = value.producer()
        if (
            node is not None
            and node.op_type == "ReorderOutput"
            and not value.uses()
            and not value.is_graph_output()
        ):
            model.graph.remove(node, safe=True)


def _options(level: ort.GraphOptimizationLevel, model: ir.Model) -> ort.SessionOptions:
    options = new_session_options(weight_bytes(model))
    options.graph_optimization_level = level
    options.use_deterministic_compute = True
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; warnings would mix with the progress bar
    return options


def _session(source: str, options: ort.SessionOptions, provider: str, title: str) -> ort.InferenceSession:
    try:
        return new_session(source, options, provider)
    except RUNTIME_ERRORS as error:
        raise ModelError(load_refusal(title, error, loaded_libraries())) from error


def runtime_dtypes(model: ir.Model, names: tuple[str, ...]) -> dict[str, ir.DataType | None]:
    """Return the element types that onnxruntime infers for outputs of operators outside the standard."""
    probe = model.clone()
    outputs = {value.name for value in probe.graph.outputs}
    wanted = set(names) - outputs
    values = [v for node in probe.graph for v in node.outputs if v.name in wanted]
    probe.graph.outputs.extend(values)
    with temporary_folder() as folder:
        options = _options(ort.GraphOptimizationLevel.ORT_DISABLE_ALL, probe)
        session = _session(_source(probe, Path(folder)), options, CPU, title_of(model))
        types = {output.name: output.type for output in session.get_outputs()}
    # "tensor(float)" is one of float; sequences, maps and the like are none.
    return {
        name: getattr(ir.DataType, types[name][len("tensor(") : -1].upper(), None)
        if types[name].startswith("tensor(")
        else None
        for name in names
    }


def _source(model: ir.Model, folder: Path) -> str:
    """Return the path of the model, saved for onnxruntime, which maps external weights without a copy."""
    place = Path(tempfile.mkdtemp(dir=folder))
    external = [tensor for tensor in constants(model) if isinstance(tensor, ir.ExternalTensor)]
    if external and all(Path(tensor.path).parent == folder for tensor in external):
        save_beside(model, folder / f"{place.name}.onnx")
        return str(folder / f"{place.name}.onnx")
    save_with_weights(model, place / "model.onnx")
    # onnxruntime maps the new file; these maps are made again when they are used.
    for tensor in external:
        with suppress(BufferError):  # an array still refers to it
            tensor.release()
    return str(place / "model.onnx")
