"""Which samples a profile is made from, and which are held out to judge the result on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.base.tool import Progress
from ...profiles.records.profile import DataId
from ...profiles.samples.batches import fixed_batch
from ...profiles.samples.objects import ChosenSamples, DataLike, WholeData, source_name
from ...profiles.samples.random_samples import is_random as is_random_source
from ...profiles.samples.samples import id_of_digests, open_samples, sample_digests
from ...profiles.samples.states import FloatModel, follows
from ...profiles.samples.values import InputSpec, Sample
from ..evaluation.metrics.truth import Labels
from ..search.closed_loop import SAMPLES
from ..search.verdict import HeldOut

QUARTER = 4
"""One in four samples is held out."""

LEAST = 4
"""Samples that are held out at least, where that leaves as many for the profile."""


@dataclass(frozen=True)
class Digests:
    """What samples are told apart by.

    Attributes:
        data: the samples.
        rows: digests of the rows of each sample, in order; one of a batch that the model fixes.
        positions: of the samples in the data, ascending, counted from 0.
        first_rows: place of the first row of each sample in the data.
        batch: rows that the model fixes for a batch; 1 for none.
        is_cut: whether there may be more samples, that a limit left out.
        sequences: number of the sequence of each sample, where they are steps of sequences; () where each is
            one alone.
    """

    data: WholeData
    rows: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]
    first_rows: tuple[int, ...]
    batch: int = 1
    is_cut: bool = False
    sequences: tuple[int, ...] = ()

    def chosen(self, places: Sequence[int]) -> ChosenSamples:
        """Return some of the samples, by their places among those that were read."""
        return ChosenSamples(self.data, tuple(self.positions[place] for place in places))

    def identity(self, positions: Sequence[int]) -> DataId:
        """Return the identity of some of the samples, as a profile has it."""
        return id_of_digests([digest for position in positions for digest in self.rows[position]])


@dataclass(frozen=True)
class Split:
    """Samples for the profile, and those to judge the result on.

    Attributes:
        profiled: for the profile.
        checked: some of these, drawn by their digests, that a model is run on before it is written.
        identity: of the profiled ones, as the profile has it.
        judged: held out, or another source.
        about: what they are.
        rows_before: of each sample of the whole data that is held out the place of its first row, and how
            many it has; () for another source, whose labels are its own.
        rows: of the whole data, as far as samples are used.
        batch, is_cut: as of `Digests`.
    """

    profiled: DataLike
    checked: DataLike
    identity: DataId
    judged: DataLike
    about: HeldOut
    rows_before: tuple[tuple[int, int], ...] = ()
    rows: int = 0
    batch: int = 1
    is_cut: bool = False


def is_random(data: DataLike) -> bool:
    """Whether samples are drawn at random, so that nothing can be judged on them."""
    return is_random_source(source_name(data))


def read_digests(
    data: WholeData,
    inputs: Sequence[InputSpec],
    limit: int | None,
    progress: Progress | None = None,
    model: FloatModel | None = None,
) -> Digests:
    """Read all samples once, and return their digests.

    Args:
        data: the samples.
        inputs: of the model.
        limit: number of samples, drawn from all of them; None for all.
        progress: called after each sample.
        model: what fills in states; None where there are none.

    Raises:
        DataError: a sample does not fit, or there is none.
    """
    source = open_samples(data, inputs, limit, model=model)
    rows: list[tuple[int, ...]] = []
    positions, first_rows, count = list[int](), list[int](), 0
    sequences: list[int] = []
    before: Sample | None = None
    for sample in source:
        sequences.append((sequences[-1] if sequences else -1) + (not follows(sample, before)))
        before = sample
        digests = tuple(sample_digests(sample.arrays, inputs))
        positions.append(len(rows) if sample.position is None else sample.position)
        first_rows.append(sample.first_row(len(digests), len(rows), count))
        rows.append(digests)
        count += len(digests)
        if progress is not None:
            progress(len(rows), source.total)
    if not rows:
        raise DataError(f"{source.source}: no samples; there is nothing to profile")
    return Digests(
        data,
        tuple(rows),
        tuple(positions),
        tuple(first_rows),
        fixed_batch(inputs),
        len(rows) == limit,
        tuple(sequences) if source.state else (),
    )


def held_out(rows: Sequence[tuple[int, ...]], sequences: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the positions of the samples that are held out, ascending: a quarter, drawn by their digests.

    So it does not depend on names, order or a seed, a sample that is added moves few others to the other
    side, and equal samples are on one side. () where all samples are equal.

    Args:
        rows: digests of the rows of each sample.
        sequences: number of the sequence of each, which is held out as a whole; () where each is one alone.
    """
    order = [_drawn(digests) for digests in rows]
    if sequences:
        whole = dict.fromkeys(sequences, b"")
        for number, drawn in zip(sequences, order, strict=True):
            whole[number] += drawn
        order = [hashlib.blake2b(whole[number], digest_size=16).digest() for number in sequences]
    unlike = sorted(set(order))
    count = max(len(unlike) // QUARTER, min(LEAST, len(unlike) // 2))
    chosen = set(unlike[:count])
    return tuple(position for position, drawn in enumerate(order) if drawn in chosen)


def _checked(found: Digests, positions: Sequence[int]) -> ChosenSamples:
    """Return the samples that a model is run on before it is written, drawn by their digests."""
    drawn = sorted(positions, key=lambda place: (_drawn(found.rows[place], b"checked"), place))
    return found.chosen(sorted(drawn[:SAMPLES]))


def _drawn(digests: tuple[int, ...], purpose: bytes = b"held-out") -> bytes:
    """Return a number that says nothing of a sample: the smallest digests are those on which noise is
    measured."""
    text = ",".join(map(str, digests))
    return hashlib.blake2b(text.encode(), digest_size=16, person=purpose).digest()


def split(found: Digests) -> Split:
    """Return the samples in two parts; the same twice where there is only one sample."""
    every = tuple(range(len(found.rows)))
    out = held_out(found.rows, found.sequences)
    kept = tuple(sorted(set(every) - set(out)))
    name, total = source_name(found.data), found.first_rows[-1] + len(found.rows[-1])
    seen = not out
    out = out or every
    about = HeldOut(len(out), sum(len(found.rows[i]) for i in out), len(every), seen, name)
    profiled = every if seen else kept
    return Split(
        found.chosen(profiled),
        _checked(found, profiled),
        found.identity(profiled),
        found.chosen(out),
        about,
        tuple((found.first_rows[place], len(found.rows[place])) for place in out),
        total,
        found.batch,
        found.is_cut,
    )


def split_beside(found: Digests, profile: DataId) -> Split:
    """Return all samples to judge a model on whose profile was given; where that is of the part that `split`
    does not hold out, the other part."""
    parts = split(found)
    if profile == parts.identity:
        return parts
    every, rows = tuple(range(len(found.rows))), sum(map(len, found.rows))
    about = HeldOut(len(every), rows, len(every), profile == found.identity(every), parts.about.source)
    places = tuple(zip(found.first_rows, map(len, found.rows), strict=True))
    samples = found.chosen(every)
    return replace(
        parts,
        profiled=samples,
        checked=_checked(found, every),
        identity=profile,
        judged=samples,
        about=about,
        rows_before=places,
    )


def split_by_source(found: Digests, other: Digests) -> Split:
    """Return all samples for the profile, and those of another source to judge the result on."""
    every, judged = range(len(found.rows)), range(len(other.rows))
    seen = found.identity(every) == other.identity(judged)
    about = HeldOut(
        len(judged), sum(map(len, other.rows)), len(every) + len(judged), seen, source_name(other.data)
    )
    return Split(
        found.chosen(every), _checked(found, every), found.identity(every), other.chosen(judged), about
    )


def has_rows(outputs: Iterable[ir.Value]) -> bool:
    """Return whether the first axis of a model's outputs can be that of the rows of a batch.

    Where the model fixes all of them, a free first axis of its inputs is another: that of time, or letters.
    """
    shapes = [value.shape for value in outputs]
    return any(shape is None or (len(shape) > 0 and not isinstance(shape[0], int)) for shape in shapes)


def in_samples(parts: Split) -> Split:
    """Return samples that are no batches: each counts as one."""
    return replace(parts, about=replace(parts.about, rows=parts.about.samples))


def _labels_of_each(count: int, parts: Split) -> int:
    """Return how many labels belong to each row that has a digest; 0 where they do not fit.

    As many as the model takes rows at a time, or one, where labels are left: of rows beyond a limit, or that
    fill no batch. Else all have as many, as each pixel or token has one.
    """
    each = parts.batch if parts.batch * parts.rows <= count else 1
    unused = count - each * parts.rows
    if parts.is_cut or 0 < unused < parts.batch:
        return each if unused >= 0 else 0
    return 0 if parts.rows == 0 or count % parts.rows else count // parts.rows


def held_out_labels(labels: Labels, parts: Split) -> Labels:
    """Return the labels of the samples that are judged.

    Args:
        labels: of all rows of the data, or of the other source.
        parts: the samples.

    Raises:
        DataError: they are not a label, or as many labels, for each row.
    """
    count = labels.classes.size
    if not parts.rows_before:
        return labels
    each = _labels_of_each(count, parts)
    if not each:
        raise DataError(
            f"{labels.file}: {count} labels, but the samples have {parts.batch * parts.rows} rows; give one "
            "label for each row, or give others to judge on, with labels of their own: --holdout-data DIR"
        )
    places = parts.rows_before
    return labels.part([row for first, rows in places for row in range(each * first, each * (first + rows))])
