"""What one thread counts of the samples that it runs: all small arrays of a sample in one compiled call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from ..base.errors import DataError
from ..instrumentation.activations import declared_shape, dtype_name
from ..instrumentation.taps import Tap
from ..observers.channel_counter import Part, gather
from ..observers.histogram_counter import advance
from ..observers.tensor_observer import Accumulator
from ..records.profile import Dim, TensorProfile, merged_shape
from ..runtime.profiling_session import block_channels
from ..runtime.run_sample import Found
from ..samples.samples import fixed_shapes
from .settings import Loaded

Array = npt.NDArray[Any]


LARGE = 1 << 16
"""Elements from which on an array is counted alone, which costs little beside them, and in pieces."""

PLANS = 64
"""Plans that are kept; samples seldom come in more shapes."""
Shapes = tuple[tuple[int, ...], ...]


class Plan(NamedTuple):
    """How the arrays of a sample of certain shapes are counted. Numbers are places among the tensors.

    Attributes:
        small: arrays that are counted all at once.
        large: those that are counted one by one.
        divided: those of the small ones whose channels are recorded.
        parts: where these channels are.
    """

    small: list[int]
    large: list[int]
    divided: list[int]
    parts: list[Part]


class Counting:
    """The statistics of the tensors of a pass, gathered by one thread at a time."""

    def __init__(self, run: Loaded, taps: Sequence[Tap]) -> None:
        """Begin with nothing.

        Args:
            run: the model.
            taps: the tensors to be counted.
        """
        sources = run.graph.sources
        self._skip = run.settings.non_finite == "skip"
        self._fixed_inputs = fixed_shapes(run.specs)
        self._taps = [tap for tap in taps if tap.stacked is None]
        self._inner = [tap for tap in taps if tap.stacked is not None]
        self._keys = {tap.name: tap.name if tap.source is None else sources[tap.source] for tap in taps}
        in_blocks = [
            tap for tap in taps if tap.axis is not None and tap.source not in (None, self._keys[tap.name])
        ]
        self._blocks = {tap.name: block_channels() for tap in in_blocks}
        self._accumulators = [empty_accumulator(tap) for tap in self._taps]
        self._inner_accumulators = [empty_accumulator(tap) for tap in self._inner]
        self._plans: dict[Shapes, Plan] = {}

    def add(self, sample: str, found: Mapping[str, Found]) -> None:
        """Count the arrays of one sample.

        Args:
            sample: its name, for messages.
            found: the arrays by the name of the value that holds them, contiguous; read where they lie.

        Raises:
            DataError: an array has another shape than the model declares, or NaN or Inf appeared where they
                must not.
        """
        arrays: list[Any] = [found[self._keys[tap.name]] for tap in self._taps]
        shapes = tuple([array.shape for array in arrays])
        plan = self._plans.get(shapes) or self._planned(sample, shapes)
        odd = self._count(arrays, plan)
        for number in sorted(odd):
            self._refuse(sample, self._taps[number], odd[number], arrays[number].size)
        for tap, accumulator in zip(self._inner, self._inner_accumulators, strict=True):
            for part in _parts(found[self._keys[tap.name]], tap):
                # A body may not run at all: what is seen of its tensors must not show.
                _check_channels(sample, tap, part.shape)
                self._refuse(sample, tap, accumulator.add(part, declared_shape(tap.shape)), part.size)

    def profiles(self) -> dict[str, TensorProfile]:
        """Return the profiles of the tensors of which there was an array."""
        taps, accumulators = self._taps + self._inner, self._accumulators + self._inner_accumulators
        both = zip(taps, accumulators, strict=True)
        return {tap.name: accumulator.profile() for tap, accumulator in both if accumulator.seen}

    def _count(self, arrays: list[Array], plan: Plan) -> dict[int, tuple[int, int]]:
        """Count arrays, and return how many NaN and infinite elements are in those that have any."""
        accumulators = self._accumulators
        odd = {}
        rests = advance([arrays[i] for i in plan.small], [accumulators[i].bins for i in plan.small])
        for rest in rests:
            number = plan.small[rest.number]
            odd[number] = accumulators[number].go_on(arrays[number].reshape(-1), rest)
        gather([arrays[i] for i in plan.divided], plan.parts)
        for number in plan.large:
            block = self._blocks.get(self._taps[number].name, 1)
            odd[number] = accumulators[number].count(arrays[number], block)
        return odd

    def _planned(self, sample: str, shapes: Shapes) -> Plan:
        """Return how arrays of these shapes are counted, which are taken note of."""
        plan = Plan([], [], [], [])
        for number, (tap, shape) in enumerate(zip(self._taps, shapes, strict=True)):
            _check_channels(sample, tap, shape)
            accumulator = self._accumulators[number]
            accumulator.see(self._recorded(tap, shape))
            if math.prod(shape) >= LARGE:
                plan.large.append(number)
                continue
            plan.small.append(number)
            part = accumulator.part(shape, self._blocks.get(tap.name, 1))
            if part is not None:
                plan.divided.append(number)
                plan.parts.append(part)
        if len(self._plans) == PLANS:
            self._plans.clear()
        self._plans[shapes] = plan
        return plan

    def _recorded(self, tap: Tap, shape: tuple[int, ...]) -> tuple[Dim, ...] | None:
        """Return what a profile records of the shape of an array."""
        declared = declared_shape(tap.shape)
        if declared is None:
            # Any dimension may hang on a free one of the inputs: on the batch, say.
            declared = shape if self._fixed_inputs else (None,) * len(shape)
        return merged_shape(declared, shape)

    def _refuse(self, sample: str, tap: Tap, odd: tuple[int, int], size: int) -> None:
        """Raise an error where there are NaN or infinite elements, unless they are to be left out."""
        if self._skip or not any(odd):
            return
        kinds = zip(odd, ("NaN", "Inf"), strict=True)
        found = " and ".join(f"{number} {kind}" for number, kind in kinds if number)
        raise DataError(
            f"sample {sample}: tensor '{tap.name}' ({tap.maker}) holds {found} among {size} elements; "
            "repair the sample or the model, or count such values and leave them out with --non-finite skip"
        )


def empty_accumulator(tap: Tap) -> Accumulator:
    """Return what gathers the profile of a tensor."""
    return Accumulator(dtype_name(tap.dtype), axis=tap.axis, channels=tap.channels)


def merged_profiles(*several: Mapping[str, TensorProfile]) -> dict[str, TensorProfile]:
    """Return the profiles of the tensors of any part, each merged from the parts that have it."""
    found: dict[str, TensorProfile] = {}
    for profiles in several:
        for name, profile in profiles.items():
            found[name] = found[name].merged(profile) if name in found else profile
    return found


def _parts(found: Found, tap: Tap) -> Iterator[Array]:
    """Yield the arrays of a tensor of a body, which may have made many of them, or none."""
    for array in found if isinstance(found, list) else [found]:
        if tap.stacked:
            own = array.shape[tap.stacked :]
            yield from array.reshape(math.prod(array.shape[: tap.stacked]), *own)
        else:
            yield array


def _check_channels(sample: str, tap: Tap, shape: tuple[int, ...]) -> None:
    """Check that an array has the channels that the model declares, if they are to be recorded."""
    if tap.axis is None:
        return
    if tap.shape is None or len(shape) != len(tap.shape) or shape[tap.axis] != tap.channels:
        raise DataError(
            f"sample {sample}: tensor '{tap.name}' ({tap.maker}) has shape {shape}, "
            f"but the model declares {declared_shape(tap.shape)}; "
            "repair the model's shapes, or leave out channels with --channels off"
        )
