"""Parts of the data that changed by more than chance, and much: columns, colours, folders."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ....profiles.base.findings import Code, Figure, Finding
from ....profiles.base.tuned import tuned
from ....profiles.records.channel_statistics import Channels
from ....profiles.records.profile import InputProfile, Profile

Part = tuple[float, str, Finding]
"""How much a part changed (the most is told first), its name, and what is said of it."""

_NIGHTS = "tables, pictures, spectra, loads: random nights of the same data, and one column changed"

MIN_SHIFT = tuned(
    1.0,
    figure=(
        "0.5, 1: of 400 nights of 40 samples in which nothing changed 13, 11 name a column, in the worst of "
        "ten data sets; of columns of 100 samples that moved by 0.7 deviations, as a season moves them, 53, "
        "7 % are named"
    ),
    chosen_on=_NIGHTS,
)
"""Deviations by which the mean of a part moves where it is named."""

MIN_SPREAD = tuned(
    3.0,
    figure=(
        "1.5, 3, 6: of 400 nights of 40 samples in which nothing changed 174, 8, 0 name a column, in the "
        "worst of ten data sets; of columns of 40 samples that spread 4 times as wide 82, 54, 50 % are named"
    ),
    chosen_on=_NIGHTS,
)
"""Factor by which the deviation of a part changes where it is named."""

SURE = tuned(
    5.0,
    figure=(
        "2.5, 5, 10: of 400 nights of 16 samples in which nothing changed 97, 52, 19 name a column, in the "
        "worst of ten data sets; of columns that moved by 1.5 deviations 100, 66, 2 % are named"
    ),
    chosen_on=_NIGHTS,
)
"""Standard errors from where on a difference is not one of chance."""

MIN_FOLDER_SHARE = tuned(
    0.1,
    figure="none: with fewer than 900 samples on either side `SURE` asks for more",
    chosen_on="by hand",
)
"""Change of a folder's share of the samples from where on it is named."""


def changed_parts(old: Profile, new: Profile) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of inputs and the folders that changed, of each kind the most first."""
    kinds = _parts_of_inputs(old, new), _folders(old, new)
    return tuple(tuple(sorted(kind, key=lambda part: -part[0])) for kind in kinds)


def has_parts(old: Profile, new: Profile) -> bool:
    """Whether any parts of the data can be compared: channels of an input, folders."""
    names = [name for name in old.inputs if name in new.inputs]
    return (bool(sum(old.folders.values())) and bool(sum(new.folders.values()))) or any(
        _channels(old.inputs[name], new.inputs[name]) is not None for name in names
    )


def _channels(old: InputProfile, new: InputProfile) -> tuple[Channels, Channels] | None:
    """Return the channels of an input in both profiles, None if they are not the same ones."""
    a, b = old.tensor.channels, new.tensor.channels
    if a is None or b is None or a.axis != b.axis or len(a.count) != len(b.count) or len(a.count) < 2:
        return None
    return a, b


def _parts_of_inputs(old: Profile, new: Profile) -> Iterator[Part]:
    """Yield the elements along the channels of inputs that changed.

    Chance is that of samples, not of elements: the pixels of a picture, and the steps of a recording, are
    alike.
    """
    for name, before in old.inputs.items():
        after = new.inputs.get(name)
        if after is None or (channels := _channels(before, after)) is None:
            continue
        size = len(channels[0].count)
        names = next((parts for parts in (after.parts, before.parts) if len(parts) == size), ())
        # Differences that rounding alone makes are none.
        least = 1e-6 * np.maximum(channels[0].magnitude, channels[1].magnitude)
        deviations = [np.sqrt(np.maximum(one.power - one.mean**2, 0.0)) for one in channels]
        deviations = [np.where(one > least, one, 0.0) for one in deviations]
        for at in np.nonzero((channels[0].count > 1) & (channels[1].count > 1))[0]:
            means = float(channels[0].mean[at]), float(channels[1].mean[at])
            spread = float(deviations[0][at]), float(deviations[1][at])
            counts = [
                min(int(one.count[at]), profile.data.samples or int(one.count[at]))
                for one, profile in zip(channels, (old, new), strict=True)
            ]
            moved = abs(means[1] - means[0])
            moved = moved if moved > least[at] else 0.0
            shift = moved / spread[0] if spread[0] else math.inf if moved else 0.0
            error = math.hypot(*(one / math.sqrt(count) for one, count in zip(spread, counts, strict=True)))
            # The relative error of a deviation is about one over the root of twice the count.
            least_spread = MIN_SPREAD * (1.0 + SURE / math.sqrt(2.0 * min(counts)))
            wider = int(spread[1] > spread[0])
            ends = float(channels[wider].minimum[at]), float(channels[wider].maximum[at])
            is_wider = _sure_spread(spread, means[wider], ends, counts[wider]) >= least_spread
            if (shift >= MIN_SHIFT and moved > SURE * error) or is_wider:
                part = names[at] if names else str(at)
                where = f"input '{name}', '{part}'" if names else f"input '{name}', {part}"
                by = f"{shift:.3g} of OLD's deviations" if math.isfinite(shift) else "constant in OLD"
                sentence = (
                    f"{where}: mean {means[0]:.4g} in OLD and {means[1]:.4g} in NEW ({by}), "
                    f"deviation {spread[0]:.3g} and {spread[1]:.3g}"
                )
                figures: dict[str, Figure] = {"part": part, "shift": shift}
                remedy = "look at its unit and source first"
                yield shift, where, Finding(Code.PART_DRIFT, sentence, name, figures, remedy)


def _sure_spread(
    deviations: tuple[float, float], mean: float, ends: tuple[float, float], count: int
) -> float:
    """Return the ratio of two deviations, the wider one without a sample whose values are all the farthest.

    If values have long tails, one sample makes a deviation: below 1 only that sample made it wider. `mean`,
    `ends` (smallest and largest value) and `count` are those of the wider one.
    """
    narrow, wide = sorted(deviations)
    if count < 2:
        return 0.0
    farthest = max(ends, key=lambda value: abs(value - mean))
    power = (count * (wide**2 + mean**2) - farthest**2) / (count - 1)
    rest = math.sqrt(max(power - ((count * mean - farthest) / (count - 1)) ** 2, 0.0))
    return 0.0 if rest == 0.0 else rest / narrow if narrow else math.inf


def _folders(old: Profile, new: Profile) -> Iterator[Part]:
    """Yield the folders, such as those of classes, whose share of the samples changed."""
    totals = [sum(profile.folders.values()) for profile in (old, new)]
    for name in sorted({*old.folders, *new.folders}) if all(totals) else ():
        counts = [profile.folders.get(name, 0) for profile in (old, new)]
        before, after = (count / total for count, total in zip(counts, totals, strict=True))
        mean = sum(counts) / sum(totals)
        error = math.sqrt(mean * (1.0 - mean) * (1.0 / totals[0] + 1.0 / totals[1]))
        if (change := abs(after - before)) >= MIN_FOLDER_SHARE and change > SURE * error:
            shares = f"{100 * before:.3g} % of the samples in OLD, {100 * after:.3g} % in NEW"
            figures: dict[str, Figure] = {"old": before, "new": after}
            remedy = "look at how the samples were chosen"
            finding = Finding(Code.PART_DRIFT, f"folder '{name}': {shares}", name, figures, remedy)
            yield round(change, 9), f"folder '{name}'", finding
