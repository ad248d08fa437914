"""Which samples a profile is made from, and which are held out to judge the result on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.base.findings import Code, Finding, gravest_first
from ...profiles.base.seconds import clocked
from ...profiles.base.tool import Progress
from ...profiles.records.profile import DataId
from ...profiles.runtime.states import float_model
from ...profiles.samples.batches import fixed_batch
from ...profiles.samples.objects import ChosenSamples, DataLike, WholeData, source_name
from ...profiles.samples.samples import id_of_digests, input_specs, open_samples, sample_digests, sample_mark
from ...profiles.samples.states import FloatModel, follows
from ...profiles.samples.values import InputSpec, Sample
from ..evaluation.evaluate import Evaluation
from ..evaluation.metrics.truth import Labels
from ..search.closed_loop import MOST_CHECK_SAMPLES
from ..search.verdict import HeldOut

HELD_OUT_FRACTION = 4
"""One in this many samples is held out."""

MIN_HELD_OUT_SAMPLES = 4
"""Least number of held-out samples, if as many are left for the profile."""


@dataclass(frozen=True)
class SampleDigests:
    """Samples that were read, and the digests that tell them apart."""

    data: WholeData
    # digests of the rows of each sample; one of a batch that the model fixes
    rows: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]  # in the data
    first_rows: tuple[int, ...]  # place of the first row of each sample in the data
    batch: int = 1  # rows that the model fixes; 1 for none
    is_cut: bool = False  # whether a limit may have left samples out
    sequences: tuple[int, ...] = ()  # number of the sequence of each sample
    marks: tuple[int, ...] = ()  # by which the samples are known again

    def chosen(self, places: Sequence[int]) -> ChosenSamples:
        """Return samples by their places in this reading, which each later reading is compared with."""
        marks = tuple(self.marks[place] for place in places) if self.marks else ()
        return ChosenSamples(self.data, tuple(self.positions[place] for place in places), marks=marks)

    def identity(self, places: Iterable[int]) -> DataId:
        """Return the identity of some of the samples, as a profile has it."""
        return id_of_digests([digest for place in places for digest in self.rows[place]])


@dataclass(frozen=True)
class SampleSplit:
    """The use of each sample."""

    profiled: ChosenSamples
    profiled_id: DataId  # as the profile has it
    drawn: tuple[int, ...]  # of some of these, that a model is run on before it is written
    held_out: ChosenSamples
    description: HeldOut
    # whose labels are divided; None if the held-out samples are another source
    labelled: SampleDigests | None
    held_out_places: tuple[int, ...]  # among those of `labelled`

    def plan_check(self, count: int) -> ChosenSamples:
        """Return the samples that a model is run on before it is written, as many as these."""
        return self.profiled.some(sorted(self.drawn[:count]))


@clocked("read samples")
def read_digests(
    data: WholeData,
    inputs: Sequence[InputSpec],
    limit: int | None,
    progress: Progress | None = None,
    model: FloatModel | None = None,
) -> SampleDigests:
    """Read all samples once, and return their digests; a `limit` draws some, a `model` fills in states."""
    source = open_samples(data, inputs, limit, model=model)
    rows: list[tuple[int, ...]] = []
    positions, first_rows, count = list[int](), list[int](), 0
    sequences, marks = list[int](), list[int]()
    before: Sample | None = None
    for sample in source:
        sequences.append((sequences[-1] if sequences else -1) + (not follows(sample, before)))
        before = sample
        digests = tuple(sample_digests(sample.arrays, inputs))
        marks.append(sample_mark(sample, source.state))
        positions.append(len(rows) if sample.position is None else sample.position)
        first_rows.append(sample.first_row(len(digests), len(rows), count))
        rows.append(digests)
        count += len(digests)
        if progress is not None:
            progress(len(rows), source.total)
    if not rows:
        raise DataError(f"{source.source}: no samples; there is nothing to profile")
    return SampleDigests(
        data,
        tuple(rows),
        tuple(positions),
        tuple(first_rows),
        fixed_batch(inputs),
        len(rows) == limit,
        tuple(sequences) if source.state else (),
        tuple(marks),
    )


def held_out_positions(rows: Sequence[tuple[int, ...]], sequences: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the positions of the held-out samples, ascending: a quarter, drawn by digest; () if all equal.

    Fewer than 16 samples give four, or half of them. If samples are steps of sequences (numbers of each
    sample), a quarter of the whole sequences is held out. Names, order and a seed do not matter; an added
    sample moves few others.
    """
    order = [_draw_number(digests) for digests in rows]
    if sequences:
        whole = dict.fromkeys(sequences, b"")
        for number, drawn in zip(sequences, order, strict=True):
            whole[number] += drawn
        order = [hashlib.blake2b(whole[number], digest_size=16).digest() for number in sequences]
    unlike = sorted(set(order))
    # A sequence has many steps, which judge: no more of them are taken from those that are profiled.
    least = 1 if sequences else MIN_HELD_OUT_SAMPLES
    count = max(len(unlike) // HELD_OUT_FRACTION, min(least, len(unlike) // 2))
    chosen = set(unlike[:count])
    return tuple(position for position, drawn in enumerate(order) if drawn in chosen)


def held_out_part(data: DataLike, model: ir.Model, limit: int | None) -> ChosenSamples:
    """Return the samples that `quantize` holds out of data, each with its place, which finds its truth."""
    assert not isinstance(data, ChosenSamples)
    split = split_samples(read_digests(data, input_specs(model), limit, model=float_model(model)))
    if split.description.seen:
        raise DataError(
            f"{source_name(data)}: no sample is held out of one; leave held_out out, or give more samples"
        )
    return replace(split.held_out, know_places=True)


def with_profiled_part(evaluation: Evaluation, was_profiled: Callable[[DataId], bool]) -> Evaluation:
    """Return an evaluation with a warning if the profile is of all its samples, or of those not held out."""
    rows = evaluation.digests
    held_out = {*held_out_positions(rows, evaluation.sequences)} if len(rows) > 1 else set[int]()
    for profiled in (range(len(rows)), [at for at in range(len(rows)) if at not in held_out]):
        if not was_profiled(id_of_digests([digest for at in profiled for digest in rows[at]])):
            continue
        part = "all" if len(profiled) == len(rows) else f"{len(profiled)} of the"
        sentence = (
            f"the profile was made from {part} {len(rows)} samples, on which a model is judged too well"
        )
        rest = "; the others are those that quantize held out" if part != "all" else ""
        remedy = "give others as --data" if part == "all" else "--held-out judges on the others"
        figures = {"profiled": len(profiled), "samples": len(rows)}
        warning = Finding(Code.SEEN_SAMPLES, sentence + rest, "", figures, remedy)
        return replace(evaluation, findings=gravest_first([*evaluation.findings, warning]))
    return evaluation


def _draw_number(digests: tuple[int, ...], purpose: bytes = b"held-out") -> bytes:
    """Return a number that is independent of the digests' order, because the smallest ones measure noise."""
    text = ",".join(map(str, digests))
    return hashlib.blake2b(text.encode(), digest_size=16, person=purpose).digest()


def split_samples(
    samples: SampleDigests, *, others: SampleDigests | None = None, profile: DataId | None = None
) -> SampleSplit:
    """Return the use of each sample: a quarter is held out, the rest profiled; a single one is both.

    Samples of another source (`others`) are the held-out ones, with all of `samples` profiled. If `profile`
    identifies other data than the part that would be profiled here, all samples are held out.
    """
    every = tuple(range(len(samples.rows)))
    judged = samples
    held_out = held_out_positions(samples.rows, samples.sequences)
    profiled = tuple(sorted(set(every) - set(held_out)))
    profiled_id, seen = samples.identity(profiled), not held_out
    held_out = held_out or every
    of_samples = len(every)
    if others is not None:
        profiled, profiled_id = every, samples.identity(every)
        judged, held_out = others, tuple(range(len(others.rows)))
        of_samples += len(held_out)
        seen = profiled_id == others.identity(held_out)
    elif profile is not None and profile != profiled_id:
        profiled, profiled_id, held_out = every, profile, every
        seen = profile == samples.identity(every)
    rows = sum(len(judged.rows[place]) for place in held_out)
    of_sequences = (0, 0)
    if samples.sequences and others is None:
        of_sequences = (len({samples.sequences[at] for at in held_out}), len(set(samples.sequences)))
    order = sorted(profiled, key=lambda place: (_draw_number(samples.rows[place], b"checked"), place))
    return SampleSplit(
        profiled=samples.chosen(profiled),
        profiled_id=profiled_id,
        drawn=tuple(samples.positions[place] for place in order[:MOST_CHECK_SAMPLES]),
        held_out=judged.chosen(held_out),
        description=HeldOut(len(held_out), rows, of_samples, seen, source_name(judged.data), of_sequences),
        labelled=samples if others is None else None,
        held_out_places=held_out,
    )


def held_out_labels(labels: Labels, split: SampleSplit) -> Labels:
    """Return the labels of the held-out samples; DataError if they do not fit the rows.

    Each row has as many labels as the model takes rows at a time, or one; or all have equally many (pixels).
    """
    samples, count = split.labelled, labels.classes.size
    if samples is None:
        return labels
    rows = samples.first_rows[-1] + len(samples.rows[-1])  # of the data, as far as samples are used
    each = samples.batch if samples.batch * rows <= count else 1
    unused = count - each * rows
    if not (samples.is_cut or 0 < unused < samples.batch):
        each, unused = (0 if rows == 0 or count % rows else count // rows), 0
    if not each or unused < 0:
        raise DataError(
            f"{labels.file}: {count} labels, but the samples have {samples.batch * rows} rows; give one "
            "label for each row, or give others to judge on, with labels of their own: --holdout-data DIR"
        )
    spans = ((samples.first_rows[place], len(samples.rows[place])) for place in split.held_out_places)
    return labels.subset([row for first, n in spans for row in range(each * first, each * (first + n))])
