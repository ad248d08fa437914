"""The profile: the frozen values that a calibration run produces and everything later reads.

`Profile` contains the identity of model and data (`ModelId`, `DataId`), statistics of every tensor
(`TensorProfile`) and of the inputs (`InputProfile`). Each can be merged exactly with that of other samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.arguments import checks_arguments
from ..base.conversion import Count, Digest, OutputKind
from ..base.errors import NaturalKey, ProfileError, natural_key, nearest
from ..base.findings import Code, Finding
from ..base.json_values import to_jsonable
from ..base.presentation import Presentation, Presented, Table, is_report, percent
from .channel_statistics import Channels
from .check_samples import Array, CheckSample, chosen_samples
from .drawing import Drawing, drawing, shape_text, small_histogram
from .histogram import Bins, Histogram

if TYPE_CHECKING:
    from .data_checks import InputCheck

Dim = Count | None
"""One dimension of a shape: its size, or None if it is free or differed between samples."""


FLOAT_DTYPES = ("float", "float16", "bfloat16", "double")
"""Element types of the tensors that are profiled, by their names in profiles."""


@dataclass(frozen=True)
class ModelId:
    """Which prepared model a profile or a plan belongs to.

    Free dimensions and weights do not enter the digest `structure`; `file` is for people, never compared.
    """

    structure: str
    weights: str
    opset: Count
    file: str = field(default="", compare=False)


@dataclass(frozen=True)
class DataId:
    """The calibration data: rows, the sum modulo 2**128 of their digests, and whether some are random."""

    samples: Count = 0
    digest: Digest = "0" * 32
    random: bool = False

    def merged(self, other: DataId) -> DataId:
        """Return the identity of both data sets together."""
        total = (int(self.digest, 16) + int(other.digest, 16)) % (1 << 128)
        return DataId(self.samples + other.samples, f"{total:032x}", self.random or other.random)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """A warning if some of the data are random values."""
        if not self.random:
            return ()
        sentence = (
            "the profile is of random values: good for a smoke test, but ranges, and quality estimated from "
            "them, are meaningless"
        )
        return (Finding(Code.RANDOM_DATA, sentence, remedy="profile the model on samples"),)


def check_data_not_random(data: DataId, name: str, use: str) -> None:
    """Refuse a profile of random values for a use, in words, that judges quality."""
    if data.random:
        raise ProfileError(
            f"{name}: is a profile of random values, and {use} needs one of samples; make it with "
            "'qprof dump-profile --data DIR'"
        )


@dataclass(frozen=True, repr=False)
class TensorProfile:
    """Statistics of one tensor.

    Attributes:
        dtype: ONNX element type name in lower case, such as "float" (float32), "float16", "double".
        shape: dimensions, None for one that is free or differs between samples; None for an unknown rank.
        minimum, maximum: exact smallest and largest finite value; 0.0 when the tensor had none.
        count: number of finite elements, the sum of the histogram's counts. Without a histogram, the elements
            of one sample if the model determines them, and at least 1.
        zeros: how many of them are zero (they are in the histogram as well).
        nan, inf: number of elements that were not finite; in neither range nor histogram.
        histogram: exact 2000-bin histogram of the finite elements; of another tool's file the equal bins
            that it holds, or none.
        channels: per-channel ranges and sums, for inputs of weighted layers; else None.
    """

    dtype: str
    shape: tuple[Dim, ...] | None
    minimum: float
    maximum: float
    count: Count
    zeros: Count
    nan: Count
    inf: Count
    histogram: Bins
    channels: Channels | None = None

    def __repr__(self) -> str:
        """Return one line."""
        shape, span = shape_text(self.shape), f"{self.minimum:.6g} .. {self.maximum:.6g}"
        return f"<TensorProfile: {self.dtype} {shape}, {span}, {self.count} elements>"

    def to_dict(self) -> dict[str, Any]:
        """Return type, shape, range and counts; the histogram and the channels are in the profile's file."""
        names = ("dtype", "minimum", "maximum", "count", "zeros", "nan", "inf")
        shape = None if self.shape is None else list(self.shape)
        return {"shape": shape, **{name: getattr(self, name) for name in names}}

    def merged(self, other: TensorProfile) -> TensorProfile:
        """Return the profile of both sets of elements together: exact, commutative, associative.

        Raises:
            ProfileError: the types differ, or the channels, or there would be too many elements.
        """
        if self.dtype != other.dtype:
            raise ProfileError(
                f"is of {other.dtype}, in the others of {self.dtype}; restore the files, or profile the "
                "shards again"
            )
        if self.count + other.count > MAX_COUNT:
            raise ProfileError(f"would have more than {MAX_COUNT} elements; merge fewer profiles")
        assert isinstance(self.histogram, Histogram)
        assert isinstance(other.histogram, Histogram)
        if self.count == 0 or other.count == 0:
            full = other if self.count == 0 else self
            low, high = full.minimum, full.maximum
        else:
            low, high = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        channels = None
        if self.channels is not None and other.channels is not None:
            channels = self.channels.merged(other.channels)
        elif self.channels is not other.channels:
            if (self if self.channels is None else other).count:
                has = "no" if other.channels is None else "a"
                raise ProfileError(
                    f"has {has} record of its channels, other than in the others; profile all shards with "
                    "the same options and the same version of qprof"
                )
            channels = self.channels or other.channels  # of an unknown rank, where no array came
        return TensorProfile(
            dtype=self.dtype,
            shape=merged_shape(self.shape, other.shape),
            minimum=low,
            maximum=high,
            count=self.count + other.count,
            zeros=self.zeros + other.zeros,
            nan=self.nan + other.nan,
            inf=self.inf + other.inf,
            histogram=self.histogram.merged(other.histogram),
            channels=channels,
        )


MAX_COUNT = (1 << 63) - 1
"""Largest count that a histogram holds (int64)."""


def merged_shape(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """Return the shape of both: None for a dimension that differs, None for ranks that differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


# Inputs ----------------------------------------------------------------------------------------------------

Sizes = tuple[tuple[Count, Count], ...]
"""The smallest and the largest size of each dimension."""


@dataclass(frozen=True)
class InputProfile:
    """The values of a graph input, over all samples.

    Attributes:
        tensor: statistics of its elements. Integers are counted as the nearest floats (exact below 2**53),
            strings not at all.
        sizes: sizes of the arrays; None if their ranks differ.
        normalised: whether the model itself begins by scaling or shifting it by constants.
        transposed: whether the model begins by moving its axes.
        fed_by: for a state, the output of the previous step that it read.
        rate: samples per second of a signal; 0 for other inputs.
    """

    tensor: TensorProfile
    sizes: Sizes | None
    normalised: bool = False
    transposed: bool = False
    fed_by: str | None = None
    rate: Count = 0

    def merged(self, other: InputProfile) -> InputProfile:
        """Return the record of both sets of samples together."""
        return InputProfile(
            self.tensor.merged(other.tensor),
            merged_sizes(self.sizes, other.sizes),
            self.normalised or other.normalised,
            self.transposed or other.transposed,
            self.fed_by or other.fed_by,
            self.rate if self.rate == other.rate else 0,
        )


def sizes_of(shape: tuple[int, ...]) -> Sizes:
    """Return the sizes of one array."""
    return tuple((size, size) for size in shape)


def merged_sizes(a: Sizes | None, b: Sizes | None) -> Sizes | None:
    """Return the sizes of both sets of arrays."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=True))


# Outputs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputMeaning:
    """The kind of an output, and why it is that.

    Attributes:
        kind: kind of the output, which determines the measure of its error.
        reason: the rule that decided, for people.
    """

    kind: OutputKind
    reason: str

    def sentence(self, output: str, more: int = 0) -> str:
        """Return the kind of an output, and the reason; `more` counts unnamed outputs of the kind."""
        others = f" and {more} more" if more else ""
        through = ", judged through the other outputs" if self.kind == "state" else ""
        return f"output '{output}'{others}: {self.kind} ({self.reason}){through}"

    @staticmethod
    def remedy(output: str) -> str:
        """Return the setting with which the user chooses the kind of an output."""
        return f"change with --set output_kind={output}=KIND"


# Measured noise --------------------------------------------------------------------------------------------

# What becomes of small rounding errors on their way through the model, for a few samples.

INJECTED = 1e-4
"""Power of the rounding noise that is added to an activation, as a share of its signal (40 dB).

It is enough to stand clear of the rounding of float32 after many layers, and so little that functions are
nearly linear in it."""

DIGITS = 5
"""Significant decimal digits of a mean square: 0.0005 dB."""


@dataclass(frozen=True)
class TensorNoise:
    """The values of one tensor in one sample, as mean squares; fillers of masks count as 0, None is unknown.

    `signal` is that of float. `activation_noise` is that of the error before its own rounding, if every
    activation is rounded with `INJECTED` times its signal; `weight_noise` if every weight is rounded to int8.
    """

    signal: float | None
    activation_noise: float | None
    weight_noise: float | None

    @property
    def injected(self) -> float:
        """Mean square of the noise of the tensor's own rounding; 0 if it was not rounded."""
        return 0.0 if self.signal is None else INJECTED * self.signal


@dataclass(frozen=True)
class SampleNoise:
    """The measured noise of one sample, and the tensors whose shape changed once values were rounded."""

    digest: str
    tensors: Mapping[str, TensorNoise]
    changed_shapes: tuple[str, ...] = ()
    # of what its recurrent nodes read in float the middle steps; they are not in the file
    sequences: Mapping[str, Array] = field(default_factory=dict, compare=False)


def mean_square(total: float, count: int) -> float | None:
    """Return a mean square for the record; None if it is not finite or there are no elements."""
    if not count or not isfinite(total):
        return None
    return float(f"{total / count:.{DIGITS - 1}e}")


def pooled_noise(samples: Iterable[SampleNoise]) -> dict[str, TensorNoise]:
    """Return signal and noises summed for each tensor, over those samples that have the most figures."""
    measured: dict[str, list[TensorNoise]] = {}
    for sample in samples:
        for name, noise in sample.tensors.items():
            measured.setdefault(name, []).append(noise)
    pooled = {}
    for name, noises in measured.items():
        rows = [(noise.signal, noise.activation_noise, noise.weight_noise) for noise in noises]
        measured_figures = [tuple(figure is not None for figure in row) for row in rows]
        most = max(measured_figures, key=sum)
        columns = zip(
            *(row for row, which in zip(rows, measured_figures, strict=True) if which == most), strict=True
        )
        pooled[name] = TensorNoise(*(None if column[0] is None else sum(column) for column in columns))
    return pooled


def changed_shapes(samples: Iterable[SampleNoise]) -> frozenset[str]:
    """Return the tensors whose shape changed in any of the samples."""
    return frozenset(name for sample in samples for name in sample.changed_shapes)


# NaN and Inf -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstNonFinite:
    """Where NaN or Inf first came up in a run; `position` is that of the tensor in graph order."""

    sample: str
    position: int
    tensor: str
    producer: str
    nan: int
    inf: int
    elements: int

    @property
    def order(self) -> tuple[NaturalKey, int]:
        """The key of the first of several: the natural order of the samples, then of the graph."""
        return natural_key(self.sample), self.position


def first_of(*found: FirstNonFinite | None) -> FirstNonFinite | None:
    """Return the first of those of several runs."""
    return min(filter(None, found), key=lambda one: one.order, default=None)


# All of it -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Profile(Presented, Mapping[str, TensorProfile]):
    """The record of one or more calibration runs of one model: a mapping from tensor name to its statistics.

    Attributes:
        model: the prepared model that was profiled.
        data: which calibration data.
        tensors: name to profile, in graph order.
        origin: "qprof", or the name of the file format of another tool, whose keys are the names of that file
            as long as the profile is not bound to a model.
        tool: name and version of the writer.
        non_finite: where the run first met NaN or Inf; None for a profile that was read from a file.
        noise: how noise travels through the model, for the first check samples; it is not in the file.
        check_samples: digests of the samples that are kept beside the profile, in order.
        keep_samples: how many these were to be, at most.
        held_samples: these samples; () if they were not read or do not exist.
        runs: number of runs of the model: one for each sample, or for each batch. 0 if unknown.
        inputs: statistics of the inputs of the graph, in order; empty if `runs` is 0.
        outputs: the kind of each output of the graph, decided from all samples; {} in older files.
    """

    model: ModelId
    data: DataId
    tensors: Mapping[str, TensorProfile]
    origin: str = "qprof"
    tool: str = field(default="", compare=False)
    non_finite: FirstNonFinite | None = field(default=None, compare=False)
    noise: tuple[SampleNoise, ...] = field(default=(), compare=False)
    check_samples: tuple[Digest, ...] = ()
    keep_samples: Count = 0
    held_samples: tuple[CheckSample, ...] = field(default=(), compare=False)
    runs: Count = 0
    inputs: Mapping[str, InputProfile] = field(default_factory=dict)
    outputs: Mapping[str, OutputMeaning] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings about the data: random samples, NaN and Inf, pixels that were not scaled, few
        samples."""
        from .data_checks import data_findings
        from .non_finite import non_finite_finding

        non_finite = non_finite_finding(self)
        return (*self.data.findings, *(() if non_finite is None else (non_finite,)), *data_findings(self))

    def input_checks(self) -> tuple[InputCheck, ...]:
        """Return type, sizes, range, mean and standard deviation of each input of the graph, in order."""
        from .data_checks import check_input

        return tuple(check_input(name, record) for name, record in self.inputs.items())

    def __getitem__(self, name: str) -> TensorProfile:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def headline(self) -> str:
        """Return the model's file, and how many tensors and samples there are."""
        random = " OF RANDOM VALUES" if self.data.random else ""
        return f"{self.model.file or 'model'}, {len(self)} tensors, {self.data.samples} samples{random}"

    def presentation(self) -> Presentation:
        """Return a table of the tensors with small histograms, whose heights are logarithmic."""
        rows = [
            (
                name,
                small_histogram(t.histogram, t.minimum, t.maximum),
                t.dtype,
                shape_text(t.shape),
                f"{t.minimum:.6g}",
                f"{t.maximum:.6g}",
                # Histograms of other tools do not count zeros.
                percent(t.zeros / t.count if t.count and isinstance(t.histogram, Histogram) else None, 1),
            )
            for name, t in self.items()
        ]
        header = ("tensor", "histogram", "type", "shape", "minimum", "maximum", "zeros")
        facts = (
            *((("from", source_of(self)),) if self.origin != "qprof" else ()),
            *(("input", check.sentence.removeprefix("input ")) for check in self.input_checks()),
            *(("output", one.sentence(name).removeprefix("output ")) for name, one in self.outputs.items()),
        )
        return Presentation(facts, (Table(header, tuple(rows), left=4),), self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the model, the amount of data, checks of the inputs, findings, and each tensor as
        `TensorProfile.to_dict` has it."""
        return {
            "model": self.model.file,
            "samples": self.data.samples,
            "inputs": to_jsonable(self.input_checks()),
            "findings": to_jsonable(self.findings),
            "outputs": to_jsonable(self.outputs),
            "tensors": {name: tensor.to_dict() for name, tensor in self.items()},
        }

    def plot(self, tensor: str) -> Drawing:
        """Return the histogram of a tensor as a drawing; heights are logarithmic.

        Raises:
            ProfileError: there is no such tensor.
        """
        if tensor not in self:
            raise ProfileError(
                f"the profile: no tensor is called '{tensor}'; see its keys.{nearest(tensor, self)}"
            )
        profile = self[tensor]
        return drawing(tensor, profile.histogram, profile.minimum, profile.maximum)

    def with_held(self, samples: Iterable[CheckSample], keep: int) -> Profile:
        """Return the profile with those of some samples that are to be kept beside it.

        Args:
            samples: all that may be chosen.
            keep: how many at most.
        """
        held = chosen_samples(samples, keep)
        digests = tuple(sample.digest for sample in held)
        return replace(self, check_samples=digests, keep_samples=keep, held_samples=held)

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile's file, and that of its check samples (`samples_file`); a name that ends in
        .html, .md or .json asks for a report.

        Raises:
            ConfigError: the file cannot be written.
        """
        if is_report(path):
            super().save(path)
        else:
            from .store import save_profile

            save_profile(self, path)

    def merged(self, other: Profile, first: str = "this one", where: str = "the other profile") -> Profile:
        """Return the profile of both data sets together; errors have the names of both.

        Check samples are kept if both profiles have theirs.

        Raises:
            ProfileError: the profiles belong to different models or hold different tensors.
        """
        if self.model != other.model:
            same_graph = replace(self.model, weights="") == replace(other.model, weights="")
            raise ProfileError(
                f"{where}: is of {'other weights' if same_graph else 'another model'} than {first}: "
                f"{describe(other.model)} against {describe(self.model)}; merge profiles of one model only"
            )
        if unshared := sorted(set(self) ^ set(other)):
            has, lacks = (first, where) if unshared[0] in self else (where, first)
            raise ProfileError(
                f"{lacks}: has no tensor '{unshared[0]}', which {has} has; profile all shards with the same "
                "options and the same version of qprof"
            )
        inputs = {}  # none where one of the two has none of these inputs
        if self.inputs.keys() == other.inputs.keys():
            inputs = _merged_by_name(self.inputs, other.inputs, f"{where}: input")
        merged = Profile(
            model=replace(self.model, file=min(self.model.file, other.model.file)),
            data=self.data.merged(other.data),
            tensors=_merged_by_name(self.tensors, other.tensors, f"{where}: tensor"),
            origin=self.origin,
            tool=", ".join(sorted({*self.tool.split(", "), *other.tool.split(", ")} - {""})),
            non_finite=first_of(self.non_finite, other.non_finite),
            runs=self.runs + other.runs if self.runs and other.runs else 0,
            inputs=inputs,
            outputs={n: one for n, one in self.outputs.items() if other.outputs.get(n) == one},
        )
        if not (self.holds_its_samples and other.holds_its_samples):
            return merged
        keep = min(self.keep_samples, other.keep_samples)
        return merged.with_held([*self.held_samples, *other.held_samples], keep)

    @property
    def holds_its_samples(self) -> bool:
        """Whether the check samples that it names are in memory."""
        return len(self.held_samples) == len(self.check_samples)


Mergeable = TypeVar("Mergeable", TensorProfile, InputProfile)


def _merged_by_name(
    mine: Mapping[str, Mergeable], others: Mapping[str, Mergeable], where: str
) -> dict[str, Mergeable]:
    """Return the records of both profiles; an error has the name."""
    merged = {}
    for name, one in mine.items():
        try:
            merged[name] = one.merged(others[name])
        except ProfileError as problem:
            raise ProfileError(f"{where} '{name}' {problem}") from None
    return merged


def describe(model: ModelId) -> str:
    """Return a short text that distinguishes models: file name and the heads of both digests."""
    return f"{model.file or 'model'} (structure {model.structure[:12]}, weights {model.weights[:12]})"


# What can be done with a profile: it depends on which tool recorded it, and how much -----------------------


def is_bound(profile: Profile) -> bool:
    """Return whether the keys are names of tensors of a prepared model, not those of another tool's file."""
    return profile.origin == "qprof" or bool(profile.model.structure)


def is_exact(profile: Profile) -> bool:
    """Return whether all histograms are exact: only such profiles can be merged and compared."""
    return is_bound(profile) and all(isinstance(t.histogram, Histogram) for t in profile.values())


def has_histograms(profile: Profile) -> bool:
    """Return whether any tensor has a histogram; True as well if no tensor has elements."""
    held = [tensor for tensor in profile.values() if tensor.count]
    return not held or any(tensor.histogram.total for tensor in held)


def source_of(profile: Profile) -> str:
    """Return who recorded a profile, for messages."""
    return profile.tool or (f"a file of format {profile.origin}" if profile.origin != "qprof" else "qprof")
