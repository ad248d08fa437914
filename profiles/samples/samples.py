"""Where calibration and evaluation data come from: folders and files, functions and objects of Python.

Every sample is checked against the model's inputs before it is used; nothing is cast or unpickled. A missing
batch axis is added, and other contents are skipped, with a note.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..base.errors import ConfigError, DataError, QprofError
from ..base.findings import Code, Finding
from ..base.tool import note
from ..records.profile import DataId
from .functions import is_function
from .objects import (
    ChosenSamples,
    DataLike,
    KeptItems,
    PreprocessedData,
    Transformed,
    open_function,
    open_object,
)
from .preprocessing import TOKENIZER, Preprocessing, load_preprocessing
from .registry import open_source, reader_called, reader_of
from .states import FloatModel, drawn_steps, fed_back, state_output, with_states, without_state
from .storage import shown_location
from .values import InputSpec, Sample, Samples, batch_size, checked_arrays, of_batches

# What messages call a model: the file that the user gave, or the name of its graph.

_FILE = "qprof.file"
"""Key in `Graph.meta`, which is not written into files and is copied with the graph."""


def set_title(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Let messages call a model by its file."""
    model.graph.meta[_FILE] = os.fspath(path)


def folder_of(model: ir.Model) -> Path | None:
    """Return the folder of a model's file; None if it is unknown."""
    file = model.graph.meta.get(_FILE)
    return Path(str(file)).parent if file else None


def title_of(model: ir.Model) -> str:
    """Return the name of a model for messages: its file, if that is known."""
    file = model.graph.meta.get(_FILE)
    if file:
        return str(file)
    return f"model '{model.graph.name}'" if model.graph.name else "the model"


# The identity of calibration data: a digest that does not depend on order, batching or sharding.

DIGEST_BYTES = 16
DIGESTS = 1 << 8 * DIGEST_BYTES
"""Digests are added up modulo this."""


def data_id(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> DataId:
    """Return the identity of arrays that are run together; `DataId.merged` joins several."""
    return id_of_digests(sample_digests(arrays, specs))


def id_of_digests(digests: Sequence[int]) -> DataId:
    """Return the identity of the samples that have these digests."""
    return DataId(len(digests), digest_text(sum(digests)))


def digest_text(number: int) -> str:
    """Return a digest, or a sum of them, as hexadecimal digits."""
    return f"{number % DIGESTS:0{2 * DIGEST_BYTES}x}"


def sample_digests(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> list[int]:
    """Return the digest of each row of a batch, else of all arrays: the sum modulo 2**128 is the identity.

    It is blake2b over name, type, shape and little-endian elements of each input, sorted by name.
    """
    named = []
    for name in sorted(arrays):
        array = arrays[name]
        if array.dtype.kind in "OU":
            named.append((name, array.astype(object)))
        else:  # ascontiguousarray makes a scalar an array
            named.append((name, np.ascontiguousarray(array).reshape(array.shape)))
    rows = batch_size(arrays, specs)
    if rows is None:
        return [_digest(named)]
    return [_digest([(name, array[row]) for name, array in named]) for row in range(rows)]


def _digest(arrays: Sequence[tuple[str, npt.NDArray[Any] | str]]) -> int:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, array in arrays:
        values = np.asarray(array)
        shape = ",".join(map(str, values.shape)).encode()
        parts: list[bytes | memoryview]
        if values.dtype.kind in "OU":
            parts = [b"string", shape, *(str(text).encode() for text in values.flat)]
        else:
            little = values.astype(values.dtype.newbyteorder("<"), copy=False).reshape(-1)
            parts = [values.dtype.name.encode(), shape, little.view(np.uint8).data]
        for part in (name.encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return int.from_bytes(digest.digest(), "big")


# Whether a source gives the same samples each time it is read.

MARKED_BYTES = 1 << 16
"""Bytes of an array up to which a mark is of all of it."""


def sample_mark(sample: Sample, state: Collection[str] = ()) -> int:
    """Return a checksum that identifies a sample in another reading of the same source.

    For a large array it covers a selection of elements. Inputs in `state` are computed, so their last bits
    may differ.
    """
    mark = 0
    for name in sorted(sample.arrays.keys() - set(state)):
        array = sample.arrays[name]
        mark = zlib.crc32(f"{name} {array.dtype.kind}{array.itemsize} {array.shape}".encode(), mark)
        flat = array.reshape(-1)
        if array.dtype.kind in "OU":
            mark = zlib.crc32("\0".join(map(str, flat)).encode(errors="surrogatepass"), mark)
        else:
            step = array.nbytes // MARKED_BYTES | 1  # odd: in step with no row of a usual size
            mark = zlib.crc32(np.ascontiguousarray(flat[::step]).view(np.uint8).data, mark)
    return mark


def _known_again(samples: Samples, marks: Sequence[int]) -> Samples:
    """Return samples that are compared with their marks: another one raises DataError while iterating."""

    def iterate(part: slice) -> Iterator[Sample]:
        for sample, mark in zip(samples.iterate(part), marks[part], strict=False):
            if sample_mark(sample, samples.state) != mark:
                raise DataError(_other_sample(sample))
            yield sample

    return replace(samples, iterate=iterate)


def check_same_again(data: DataLike, samples: Samples) -> None:
    """Refuse user code whose first sample differs in a second reading: labels would be those of others."""
    whole = data.data if isinstance(data, Transformed) else data
    kept = isinstance(whole, ChosenSamples | KeptItems | PreprocessedData | Iterator)
    if kept or (isinstance(whole, str | os.PathLike) and not is_function(os.fspath(whole))):
        return
    readings = [list(samples.part(0, 1)) for _ in range(2)]
    if len({sample_mark(sample) for (sample,) in readings if sample}) > 1:
        raise DataError(_other_sample(readings[0][0]))


def _other_sample(sample: Sample) -> str:
    """Return the message about a sample that is another than in the reading before."""
    return (
        f"{sample.name}: is another sample each time the data is read (shuffle=True, random values?), so "
        "that neither held-out samples nor labels are those that were chosen; give shuffle=False or a fixed "
        "seed, or, in Python, list(data)"
    )


def rows_of(sample: Sample, specs: Sequence[InputSpec]) -> Iterator[Sample]:
    """Yield the rows of a batch, each as a batch of one; a sample that is not a batch unchanged."""
    rows = batch_size(sample.arrays, of_batches(specs))
    if rows is None:
        yield sample
        return
    for row in range(rows):
        arrays = {name: array[row : row + 1] for name, array in sample.arrays.items()}
        yield Sample(f"{sample.name}[{row}]", arrays)


def batches_of_shape(
    samples: Sequence[Mapping[str, npt.NDArray[Any]]], specs: Sequence[InputSpec]
) -> list[dict[str, npt.NDArray[Any]]]:
    """Return samples in the shapes of inputs: unchanged, or joined to batches of the size that is fixed.

    There are at least two batches, which repeat samples to be full. Samples of other shapes are left out.
    """
    fitting, repeats = [], 1
    for sample in samples:
        times = [_times(sample[spec.name], spec.shape) for spec in specs if spec.name in sample]
        if all(times):
            fitting.append(dict(sample))
            repeats = max(repeats, *times)
    if repeats == 1:
        return fitting
    shapes = [{name: array.shape for name, array in sample.items()} for sample in fitting]
    rows = [sample for sample, shape in zip(fitting, shapes, strict=True) if shape == shapes[0]]
    one = {spec.name for spec in specs if _times(rows[0][spec.name], spec.shape) == 1}
    chosen = [
        [rows[(batch * repeats + row) % len(rows)] for row in range(repeats)]
        for batch in range(max(2, -(-len(rows) // repeats)))
    ]
    return [
        {
            name: array if name in one else np.concatenate([row[name] for row in batch])
            for name, array in batch[0].items()
        }
        for batch in chosen
    ]


def _times(array: npt.NDArray[Any], shape: tuple[int | str | None, ...] | None) -> int:
    """Return how many arrays make up a shape along its first axis; 0 if no number of them does."""
    if shape is None or not shape:
        return 1
    fixed = [(size, want) for size, want in zip(array.shape, shape, strict=True) if isinstance(want, int)]
    if any(size != want for size, want in fixed[isinstance(shape[0], int) :]):
        return 0
    if not isinstance(shape[0], int):
        return 1
    size = array.shape[0]
    return shape[0] // size if size and shape[0] % size == 0 else 0


# What a sample of a model must hold.

PASSED_ON = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand")
"""Operators that give the same integers."""
SELECTING = ("Gather", "GatherElements", "GatherND", "ScatterElements")
"""Operators whose second input selects of the first."""


def input_specs(model: ir.Model) -> tuple[InputSpec, ...]:
    """Return the inputs that a sample must contain: the graph inputs without an initialiser, in order."""
    required = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    specs = []
    for value in required:
        if not isinstance(value.type, ir.TensorType):
            raise DataError(
                f"{title_of(model)}: input '{value.name}': is {value.type}, not a tensor; "
                "give a model whose inputs are tensors"
            )
        # Some exporters write -1 for a dimension that is free.
        sizes = (d if isinstance(d, int) else d.value for d in value.shape or ())
        shape = None if value.shape is None else tuple(None if d == -1 else d for d in sizes)
        dtype = np.dtype(value.type.dtype.numpy())
        rows = min(_selected_rows(value), default=None) if dtype.kind in "iu" else None
        specs.append(InputSpec(str(value.name), dtype, shape, rows))
    outputs, rows, metadata = output_specs(model), has_rows(model), model.metadata_props
    if metadata.get("task") in ("detect", "segment", "pose", "obb"):  # of Ultralytics
        size = "x".join(re.findall("[0-9]+", metadata.get("imgsz", "")))
        specs = [replace(spec, recipe=f"yolo:{size}".strip(":")) for spec in specs]
    return tuple(replace(spec, fed_by=state_output(spec, outputs), has_rows=rows) for spec in specs)


def has_rows(model: ir.Model) -> bool:
    """Return whether some output has a free first axis; else a free one of inputs is time or letters."""
    shapes = [value.shape for value in model.graph.outputs]
    return any(shape is None or (len(shape) > 0 and not isinstance(shape[0], int)) for shape in shapes)


def output_specs(model: ir.Model) -> tuple[InputSpec, ...]:
    """Return the outputs of a model that are tensors, as specifications of inputs."""
    specs = []
    for value in model.graph.outputs:
        if isinstance(value.type, ir.TensorType):
            shape = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape or ())
            dtype = np.dtype(value.type.dtype.numpy())
            specs.append(InputSpec(str(value.name), dtype, None if value.shape is None else shape))
    return tuple(specs)


def _selected_rows(value: ir.Value) -> Iterator[int]:
    """Yield the rows that an integer tensor selects from, at each operator that it reaches; 1 if unknown."""
    for node, index in value.uses():
        if node.op_type in PASSED_ON and index == 0:
            yield from _selected_rows(node.outputs[0])
        elif node.op_type in SELECTING and index == 1:
            selected = node.inputs[0]
            axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
            shape = None if selected is None else selected.shape
            size = shape[axis] if shape and node.op_type != "GatherND" and axis < len(shape) else None
            yield size if isinstance(size, int) else 1


def fixed_shapes(inputs: Sequence[InputSpec]) -> bool:
    """Return whether every sample must have the same shapes."""
    return all(spec.shape is not None and all(isinstance(d, int) for d in spec.shape) for spec in inputs)


# Samples of a source.


def open_samples(
    source: DataLike,
    inputs: Sequence[InputSpec],
    limit: int | None = None,
    *,
    by_row: bool = False,
    notes: bool = True,
    model: FloatModel | None = None,
) -> Samples:
    """Return the samples of a source, in a fixed order.

    A source is a folder or file for one of the readers (`registry`), "module:function", or an object of
    Python. `limit` draws samples from all of them (`Samples.drawn`). With `by_row`, a model with a fixed
    batch of 1 takes batches. `model` fills in states that go from step to step.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit: {limit} is below 1; give 1 or more, or none for all samples")
    limit = None if limit is None else min(limit, sys.maxsize)  # islice takes no more
    if isinstance(source, ChosenSamples):
        every = open_samples(source.data, inputs, by_row=by_row, model=model)
        chosen = every.chosen(source.positions[:limit], drawn=source.know_places)
        return _known_again(chosen, source.marks[:limit]) if source.marks else chosen
    specs = of_batches(inputs) if by_row else tuple(inputs)
    data, transform = (source.data, source.transform) if isinstance(source, Transformed) else (source, None)

    # Objects and functions of Python give arrays, or items that a transform makes arrays of.
    if not isinstance(data, str | os.PathLike | PreprocessedData):
        return open_object(data, transform, specs, limit)
    files = data if isinstance(data, PreprocessedData) else PreprocessedData(os.fspath(data))
    if is_function(files.source):
        if files.preprocess is not None:
            raise DataError(
                f"{files.source}: a function gives arrays that are ready; "
                f"leave preprocess {files.preprocess} out"
            )
        return open_function(files.source, transform, specs, limit)
    if transform is not None:
        raise DataError(
            f"{shown_location(files.source)}: a transform is for objects of Python and module:function; read "
            "the files in Python, or give preprocess"
        )

    # Files are read by a recipe, as steps of sequences where the model has a state.
    preprocessing = replace(load_preprocessing(files.preprocess), label=files.label)
    if model is not None and model.folder is not None and files.preprocess is None:
        is_text = reader_of(files.source, Preprocessing()).takes == ("text",)
        tokenizer = model.folder / TOKENIZER
        if is_text and all(spec.dtype.kind != "O" for spec in specs) and tokenizer.is_file():
            preprocessing = load_preprocessing(str(tokenizer))
            sentence = f"{tokenizer}: this file beside the model is the tokenizer"
            remedy = "override with --preprocess"
            if notes:
                note(Finding(Code.READING_ASSUMED, sentence, preprocessing.name, remedy=remedy))
    feedback = fed_back(preprocessing, inputs, model)
    if feedback and model is not None:
        own_preprocessing, own_inputs = without_state(preprocessing, inputs, feedback)
        steps = open_source(files.source, own_inputs, own_preprocessing)
        samples = with_states(steps, feedback, inputs, model)
        for finding in samples.findings if notes else ():
            note(finding)
        return samples if limit is None else samples.chosen(drawn_steps(steps, limit), drawn=True)
    samples = open_source(files.source, specs, preprocessing)
    read = samples if limit is None else samples.drawn(limit)
    for finding in samples.findings if notes else ():
        note(finding)
    folder = read.source if os.path.isdir(read.source) else ""

    def checked(part: slice) -> Iterator[Sample]:
        # Nothing goes from step to step: rows of an array and windows of a recording stand for themselves.
        for sample in read.iterate(part):
            arrays = checked_arrays(os.path.join(folder, sample.name), sample.arrays, specs)
            yield replace(sample, arrays=arrays, step=None)

    return replace(read, iterate=checked)


def token_decoder(data: DataLike | None, folder: Path | None) -> Callable[[Sequence[int]], str] | None:
    """Return a function from token ids to text, "" if it fails; None without a tokenizer."""
    while isinstance(data, ChosenSamples | Transformed):
        data = data.data
    paths = [] if folder is None else [folder / TOKENIZER]
    if isinstance(data, PreprocessedData) and data.preprocess is not None:
        preprocessing = load_preprocessing(data.preprocess)
        if preprocessing.kind == TOKENIZER and preprocessing.path is not None:
            paths.insert(0, preprocessing.path)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None

    def decoded(ids: Sequence[int]) -> str:
        try:
            text: str = reader_called("text").load(str(path)).decoded(path, ids)
        except QprofError:  # a library is missing, or the file is another
            return ""
        return text

    return decoded
