"""Where calibration and evaluation data come from: folders and files, functions and objects of Python.

Every sample is checked against the model's inputs before it is used; nothing is cast or unpickled. The batch
axis that objects lack is added, and what else they hold is left out, with a note.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..base.errors import DataError
from ..base.tool import note
from ..records.profile import DataId
from .functions import is_function, items_of, load_function, user_code
from .images import image_files, picture_of
from .objects import (
    NAME,
    ChosenSamples,
    DataLike,
    DataSource,
    PreprocessedData,
    Transformed,
    arrays_of,
    as_inputs,
    is_indexed,
    iterable_of,
    length_of,
    reader_of,
)
from .preprocessing import TOKENIZER, Preprocessing, load_preprocessing
from .registry import open_source
from .registry import reader_of as reader_of_source
from .states import FloatModel, fed_back, with_states, without_state
from .storage import place_of, shown_location
from .text import lines_of
from .values import InputSpec, Sample, Samples, batch_size, checked_arrays, of_batches

# What messages call a model: the file that the user gave, or the name of its graph.

_FILE = "qprof.file"
"""Key in `Graph.meta`, which is not written into files and is copied with the graph."""


def set_title(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Let messages call a model by its file."""
    model.graph.meta[_FILE] = os.fspath(path)


def folder_of(model: ir.Model) -> Path | None:
    """Return the folder of a model's file; None where it is not known."""
    file = model.graph.meta.get(_FILE)
    return Path(str(file)).parent if file else None


def title_of(model: ir.Model) -> str:
    """Return what messages call a model: its file, where that is known."""
    file = model.graph.meta.get(_FILE)
    if file:
        return str(file)
    return f"model '{model.graph.name}'" if model.graph.name else "the model"


# The identity of calibration data: a digest that does not depend on order, batching or sharding.

DIGEST_BYTES = 16
DIGESTS = 1 << 8 * DIGEST_BYTES
"""Digests are added up modulo this."""


def data_id(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> DataId:
    """Return the identity of the arrays that are run together; `DataId.merged` gives that of several.

    If all inputs share a free leading dimension, their rows i together are one sample, so that it does not
    matter how the samples were batched; otherwise all arrays together are one sample. The digest of a sample
    is blake2b over name, type, shape and little-endian elements of each input, sorted by name, and
    these add up modulo 2**128.

    Args:
        arrays: by input name.
        specs: inputs of the model.
    """
    return id_of_digests(sample_digests(arrays, specs))


def sample_digests(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> list[int]:
    """Return the digest of each of the samples that arrays hold, which `data_id` adds up."""
    named = [(name, _contiguous(arrays[name])) for name in sorted(arrays)]
    rows = batch_size(arrays, specs)
    if rows is None:
        return [_digest(named)]
    return [_digest([(name, array[row]) for name, array in named]) for row in range(rows)]


def id_of_digests(digests: Sequence[int]) -> DataId:
    """Return the identity of the samples that have these digests."""
    return DataId(len(digests), digest_text(sum(digests)))


def rows_of(sample: Sample, specs: Sequence[InputSpec]) -> Iterator[Sample]:
    """Yield the rows of a batch, each as a batch of one; a sample that is not a batch as it is.

    For a model with a fixed batch of 1, `of_batches` gives the inputs that its batches have.
    """
    rows = batch_size(sample.arrays, of_batches(specs))
    if rows is None:
        yield sample
        return
    for row in range(rows):
        arrays = {name: array[row : row + 1] for name, array in sample.arrays.items()}
        yield Sample(f"{sample.name}[{row}]", arrays)


def _contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind in "OU":
        return array.astype(object)
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes a scalar an array


def _digest(arrays: Sequence[tuple[str, npt.NDArray[Any] | str]]) -> int:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, array in arrays:
        parts: list[bytes | memoryview]
        values = np.asarray(array)
        if values.dtype.kind in "OU":
            texts = [str(text).encode() for text in values.flat]
            parts = [b"string", _numbers(values.shape), *texts]
        else:
            little = values.astype(values.dtype.newbyteorder("<"), copy=False).reshape(-1)
            parts = [values.dtype.name.encode(), _numbers(values.shape), little.view(np.uint8).data]
        for part in (name.encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return int.from_bytes(digest.digest(), "big")


def _numbers(shape: tuple[int, ...]) -> bytes:
    return ",".join(map(str, shape)).encode()


def digest_text(number: int) -> str:
    """Return a digest, or a sum of them, as hexadecimal digits."""
    return f"{number % DIGESTS:0{2 * DIGEST_BYTES}x}"


# How many rows an integer input selects from: the ids that the embedding of a model has.

PASSED_ON = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand")
"""Operators that give the same integers."""
SELECTING = ("Gather", "GatherElements", "GatherND", "ScatterElements")
"""Operators whose second input selects of the first."""


def selected_rows(value: ir.Value) -> int | None:
    """Return how many rows the values of a tensor select from, the fewest where there are several.

    Args:
        value: an input of a model.

    Returns:
        1 where the model does not say how many, None where nothing is selected.
    """
    return min(_rows(value), default=None)


def _rows(value: ir.Value) -> Iterator[int]:
    for node, index in value.uses():
        if node.op_type in PASSED_ON and index == 0:
            yield from _rows(node.outputs[0])
        elif node.op_type in SELECTING and index == 1:
            yield _size(node)


def _size(node: ir.Node) -> int:
    selected = node.inputs[0]
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    shape = None if selected is None else selected.shape
    size = shape[axis] if shape and node.op_type != "GatherND" and axis < len(shape) else None
    return size if isinstance(size, int) else 1


def input_specs(model: ir.Model) -> tuple[InputSpec, ...]:
    """Return what a sample of the model must hold: the graph inputs that are no initialisers, in order.

    Args:
        model: the model.

    Raises:
        DataError: an input is not a tensor.
    """
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
        rows = selected_rows(value) if dtype.kind in "iu" else None
        specs.append(InputSpec(str(value.name), dtype, shape, rows))
    return tuple(specs)


def fixed_shapes(inputs: Sequence[InputSpec]) -> bool:
    """Tell whether every sample must have the same shapes."""
    return all(spec.shape is not None and all(isinstance(d, int) for d in spec.shape) for spec in inputs)


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

    Args:
        source: a folder or file that one of the readers (`registry`) reads, with a recipe or without one;
            "module:function"; or an object of Python. A folder of arrays holds `.npz` files (one sample
            each, arrays named after the inputs), `.npy` files (models with one input), `input_*.pb` files as
            in the ONNX model zoo (one sample), or `test_data_set_*` folders of those. Files come in natural
            order, 2 before 10. An object is an iterable, or a function without arguments that returns one,
            as "module:function" names one. Its items are dicts from input name to array; for a model with
            one input also arrays; or tuples that begin with one of these, such as (x, y). An array is
            anything with `__array__` or `__dlpack__`, and is copied; it may lack the batch axis, and a dict
            may hold more than the inputs.
        inputs: what the samples must hold.
        limit: number of samples, drawn from all of them (`drawn`); None for all.
        by_row: whether the caller runs each row of a batch on its own (`rows_of`): a model with a fixed batch
            of 1 then takes batches.
        notes: whether what was assumed is noted: not by each of several workers.
        model: what fills in states that go from step to step, as `model_samples` gives it; None for none.

    Raises:
        ConfigError: the recipe cannot be read, or asks for what cannot be done; a library is missing.
        DataError: no such folder, module or function; a folder without samples; an object that cannot be
            iterated. While iterating: a file that is broken or holds pickled objects; an input that is
            missing, unknown, or of the wrong type, rank or fixed dimension; code of the user's that raises or
            yields something else; an iterator that has to be read a second time, or has nothing left.
    """
    if limit is not None and limit < 1:
        raise DataError(
            f"limit {limit}: at least one sample is needed; give a number from 1, or none for all"
        )
    if isinstance(source, ChosenSamples):
        every = open_samples(source.data, inputs, by_row=by_row, model=model)
        return _chosen(every, source.positions[:limit])
    specs = of_batches(inputs) if by_row else tuple(inputs)
    if not isinstance(source, str | os.PathLike | PreprocessedData):
        return _of_objects(source, specs, limit)
    named = source if isinstance(source, PreprocessedData) else PreprocessedData(os.fspath(source))
    if is_function(named.source):
        if named.preprocess is not None:
            raise DataError(
                f"{named.source}: a function gives arrays that are ready; "
                f"leave preprocess {named.preprocess} out"
            )
        return _of_function(named.source, None, specs, limit)
    preprocess = named.preprocess
    if preprocess is None and (beside := _tokenizer_beside(named.source, specs, model)) is not None:
        preprocess = str(beside)
        if notes:
            note(
                f"{beside}: makes tokens of the text, as it lies beside the model; --preprocess names another"
            )
    preprocessing = load_preprocessing(preprocess)
    feedback = fed_back(preprocessing, inputs, model)
    if feedback and model is not None:
        told, own = without_state(preprocessing, inputs, feedback)
        steps = open_source(named.source, own, told)
        samples = with_states(steps, feedback, inputs, model)
        for text in samples.notes if notes else ():
            note(text)
        if limit is None:
            return samples
        return _chosen(samples, _drawn_steps(steps, limit, notes=notes), drawn=True)
    samples = open_source(named.source, specs, preprocessing)
    assumed = samples.notes if notes else ()
    samples = samples if limit is None else drawn(samples, limit, notes=notes)
    for text in assumed:
        note(text)
    return replace(samples, iterate=partial(_checked, samples, specs))


def _tokenizer_beside(source: str, specs: Sequence[InputSpec], model: FloatModel | None) -> Path | None:
    """Return the tokenizer that lies beside the model, where lines of text need one; None for none."""
    if model is None or model.folder is None or any(spec.dtype.kind == "O" for spec in specs):
        return None
    path = model.folder / TOKENIZER
    return path if path.is_file() and reader_of_source(source, Preprocessing()).takes == ("text",) else None


def drawn(samples: Samples, limit: int, *, notes: bool = True) -> Samples:
    """Return as many of the samples, spread over all of them; of a stream, whose end is not known, the first.

    Data often lies in order: a folder for each class, the windows of one recording after another, a table
    sorted by its answer. So the order is cut in as many equal parts, and of each part one sample is drawn, by
    the place of the part and not at random: the same data and limit give the same samples, and only these are
    read.

    Args:
        samples: all of them.
        limit: how many.
        notes: whether to note that some were left out.
    """
    total = samples.total
    if total is None or total <= limit:
        return samples.part(0, limit)
    if notes:
        note(f"{samples.source}: {limit} of {total} samples, spread over all of them")
    return _chosen(samples, drawn_positions(total, limit), drawn=True)


FEWEST_SEQUENCES = 8
"""Sequences that a limit draws at least: two of them are held out. Of more there would be few steps each, and
a state shows only after some."""


def _drawn_steps(steps: Samples, limit: int, *, notes: bool) -> tuple[int, ...]:
    """Return the positions of as many steps, ascending, of sequences that are spread over all of them.

    Each sequence gives as many as the others, or all that it has; of `FEWEST_SEQUENCES`, or of more where
    these have too few. They follow each other: of a text from its first step on, which is the prompt; of
    others from a place that moves from the beginning of the first sequence to the end of the last, for
    recordings often begin with silence.

    Args:
        steps: without their states; they are read once, to count them.
        limit: how many.
        notes: whether to note that some were left out.
    """
    starts = []
    total, is_text = 0, False
    for sample in steps.iterate(slice(None)):
        is_text = is_text or sample.next_tokens is not None
        if not sample.step:
            starts.append(total)
        total += 1
    if total <= limit:
        return tuple(range(total))
    lengths = [stop - start for start, stop in pairwise([*starts, total])]
    drawn: tuple[int, ...] = ()
    while sum(lengths[at] for at in drawn) < limit:
        many = 2 * len(drawn) or min(FEWEST_SEQUENCES, limit)
        drawn = drawn_positions(len(starts), min(many, len(starts)))
    positions: list[int] = []
    for number, at in enumerate(sorted(drawn, key=lengths.__getitem__)):  # others give what one lacks
        share = min(lengths[at], (limit - len(positions)) // (len(drawn) - number))
        left = 0 if is_text else (lengths[at] - share) * drawn.index(at) // max(len(drawn) - 1, 1)
        positions += range(starts[at] + left, starts[at] + left + share)
    if notes:
        note(f"{steps.source}: {limit} of {total} steps, of {len(drawn)} of {len(starts)} sequences")
    return tuple(sorted(positions))


def drawn_positions(total: int, limit: int) -> tuple[int, ...]:
    """Return the positions of `limit` of `total` samples, one in each of as many equal parts, ascending."""
    edges = [part * total // limit for part in range(limit + 1)]
    return tuple(
        start + int.from_bytes(hashlib.blake2b(f"{part}".encode(), digest_size=8).digest()) % (stop - start)
        for part, (start, stop) in enumerate(pairwise(edges))
    )


def _of_objects(source: DataSource | Transformed, specs: tuple[InputSpec, ...], limit: int | None) -> Samples:
    data, transform = (source.data, source.transform) if isinstance(source, Transformed) else (source, None)
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
        if is_function(name):
            return _of_function(name, transform, specs, limit)
        assert transform is not None
        samples = _transformed_files(name, transform, specs)
        return samples if limit is None else drawn(samples, limit)
    ranks = [None if spec.shape is None else len(spec.shape) for spec in specs]
    whole: Any = data if transform is not None else iterable_of(data, ranks)
    total = length_of(whole)
    if limit is not None and total is not None and limit < total and is_indexed(whole):
        positions = drawn_positions(total, limit)
        items = partial(items_of, NAME, lambda: (whole[at] for at in positions), "repair the data")
        return Samples(NAME, limit, _Objects(NAME, items, transform, specs, positions).read)
    objects = _Objects(NAME, reader_of(whole), transform, specs, limit=limit)
    return Samples(NAME, total if total is None or limit is None else min(total, limit), objects.read)


def _chosen(every: Samples, positions: tuple[int, ...], *, drawn: bool = False) -> Samples:
    """Return the samples at some positions: only these files are read; of what is no folder or file, all up
    to the last. Those that a limit drew know their positions."""

    def numbered(wanted: Sequence[int]) -> Iterator[tuple[int, Sample]]:
        if every.pick is not None:
            return zip(wanted, every.pick(frozenset(wanted)), strict=True)
        if every.place and every.total is not None:
            return ((at, sample) for at in wanted for sample in every.iterate(slice(at, at + 1)))
        found, last = frozenset(wanted), max(wanted, default=-1)
        samples = enumerate(every.iterate(slice(0, last + 1)))
        return ((at, sample) for at, sample in samples if at in found)

    def read(part: slice) -> Iterator[Sample]:
        found = numbered(positions[part])
        return (replace(sample, position=at) if drawn else sample for at, sample in found)

    return replace(every, total=len(positions), iterate=read, pick=None)


def _of_function(
    name: str, transform: Callable[[Any], object] | None, specs: tuple[InputSpec, ...], limit: int | None
) -> Samples:
    function = load_function(name)
    items = partial(items_of, name, function)
    return Samples(name, None, _Objects(name, items, transform, specs, limit=limit).read)


def _checked(samples: Samples, specs: tuple[InputSpec, ...], part: slice) -> Iterator[Sample]:
    """Yield samples of files, each checked against the inputs.

    Nothing goes from step to step here: rows of an array and windows of a recording stand for themselves.
    """
    folder = samples.source if os.path.isdir(samples.source) else ""
    for sample in samples.iterate(part):
        arrays = checked_arrays(os.path.join(folder, sample.name), sample.arrays, specs)
        yield replace(sample, arrays=arrays, step=None)


@dataclass(frozen=True, eq=False)
class _Objects:
    """Samples that the user's own code gives.

    Attributes:
        source: what messages call it.
        items: gives a fresh iterator over its items.
        transform: makes a sample of an item; None where an item is one.
        specs: the model's inputs.
        positions: of the items among all that there are, where a limit drew them; None where they are the
            first.
        limit: how many are taken; None for all.
    """

    source: str
    items: Callable[[], Iterator[object]]
    transform: Callable[[Any], object] | None
    specs: tuple[InputSpec, ...]
    positions: tuple[int, ...] | None = None
    limit: int | None = None

    def read(self, part: slice) -> Iterator[Sample]:
        """Yield some of the samples; only those are transformed and checked."""
        numbers = count() if self.positions is None else self.positions
        items = islice(self.items(), self.limit)
        for number, item in islice(zip(numbers, items), part.start, part.stop, part.step):  # noqa: B905
            name = f"{self.source}[{number}]"
            arrays, notes = _arrays(name, item, self.transform, self.specs)
            for text in notes if not number else ():
                note(f"{self.source}: {text}")
            yield Sample(name, arrays, position=None if self.positions is None else number)


def _arrays(
    name: str, item: object, transform: Callable[[Any], object] | None, specs: tuple[InputSpec, ...]
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Return the arrays of an item, checked, and what was assumed."""
    if transform is not None:
        with user_code(f"{name}: transform", "repair the transform"):
            item = transform(item)
    arrays, notes = as_inputs(arrays_of(name, item, [spec.name for spec in specs]), specs)
    return checked_arrays(name, arrays, specs), notes


def _transformed_files(
    source: str, transform: Callable[[Any], object], specs: tuple[InputSpec, ...]
) -> Samples:
    """Return the pictures or lines of a folder or file, as a function of the user's makes samples of them.

    Raises:
        DataError: it holds neither.
    """
    takes, items = reader_of_source(source, Preprocessing()).takes, list[tuple[str, Callable[[], object]]]()
    if takes == ("image",):
        items = [(file.name, partial(picture_of, file)) for file in image_files(source)]
    elif takes == ("text",):
        items = [(name, partial(str, text)) for name, text in lines_of(source)]
    else:
        raise DataError(
            f"{shown_location(source)}: a transform is for pictures, lines of text, objects of Python and "
            "module:function; leave it out"
        )

    def iterate(part: slice) -> Iterator[Sample]:
        for number, (name, item) in list(enumerate(items))[part]:
            arrays, notes = _arrays(name, item(), transform, specs)
            for text in notes if not number else ():
                note(f"{shown_location(source)}: {text}")
            yield Sample(name, arrays)

    return Samples(shown_location(source), len(items), iterate, place_of(source))
