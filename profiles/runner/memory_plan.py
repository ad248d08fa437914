"""How many samples run at the same time, and which tensors in each pass, to stay below a memory limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import ConfigError
from ..runtime.machine import used_bytes
from ..runtime.profiling_session import size_name, size_session
from ..runtime.run_sample import run_sample
from ..samples.samples import Sample, Samples, fixed_shapes
from .profiling_model import ProfilingModel
from .sample_pass import runs_of

MIB = 1 << 20


@dataclass(frozen=True)
class MemoryPlan:
    """How a run is laid out.

    Attributes:
        threads: samples that run at the same time.
        passes: the tensors of each run over all samples.
        memory_limit: for which this was laid out, in bytes; None for none.
    """

    threads: int
    passes: tuple[tuple[str, ...], ...]
    memory_limit: int | None = None


def plan_run(
    model: ProfilingModel, samples: Samples | Iterable[Sample], before: MemoryPlan | None = None
) -> MemoryPlan:
    """Return the layout of a run; with a memory limit, tensors are measured on the largest sample.

    Args:
        model: the model.
        samples: of the run.
        before: the layout of a run with the same limit that is resumed: its passes stay, since what was
            measured then differs a little from what would be measured now. None for none.

    Raises:
        ConfigError: the limit is too low, or the samples can be iterated only once.
        DataError: the model fails on the largest sample.
    """
    settings, names = model.settings, [observation.name for observation in model.read]
    if settings.memory_limit is None:
        return one_pass(names, settings.samples_at_once)
    if iter(samples) is samples:
        raise ConfigError(
            "memory limit: the samples may have to be read several times, and an iterator gives them once; "
            "give a list, a folder or module:function"
        )
    if before is not None:
        return replace(before, threads=min(before.threads, settings.samples_at_once))
    largest = _largest(model, samples)
    if largest is None:
        return one_pass(names, 1)
    return replace(_measured_plan(model, largest, settings.memory_limit), memory_limit=settings.memory_limit)


def _measured_plan(model: ProfilingModel, largest: Sample, limit: int) -> MemoryPlan:
    """Return the layout for a limit, from what the largest sample needs."""
    sizes, base = _measured(model, largest)
    return plan_memory(sizes, model.settings.samples_at_once, base, limit)


def _measured(model: ProfilingModel, sample: Sample) -> tuple[dict[str, int], int]:
    """Return the bytes of each tensor that is read, and those of the process after it ran the sample."""
    sources = {o.name: model.graph.sources[o.source] for o in model.read if o.source is not None}
    with size_session(model.graph, [o.source for o in model.read if o.source is not None]) as session:
        outputs = run_sample(session, [output.name for output in session.get_outputs()], sample)
        base = used_bytes()

    def size(name: str, itemsize: int) -> int:
        if name not in sources:  # a graph input: it lies in memory anyway
            return 0
        sequence = outputs.get(sources[name])
        if isinstance(sequence, list):
            return sum(array.nbytes for array in sequence)
        return int(np.asarray(outputs[size_name(sources[name])]).item()) * itemsize

    return {o.name: size(o.name, int(o.dtype.itemsize)) for o in model.read}, base


def _largest(model: ProfilingModel, samples: Samples | Iterable[Sample]) -> Sample | None:
    """Return the sample with the most bytes in its inputs; the first where shapes are fixed."""
    if fixed_shapes(model.specs):
        return next(iter(samples), None)
    runs = (run for sample in samples for run in runs_of(model, sample))
    return max(runs, key=lambda run: sum(array.nbytes for array in run.arrays.values()), default=None)


def plan_memory(sizes: Mapping[str, int], threads: int, base: int, limit: int) -> MemoryPlan:
    """Return how to stay below a limit: fewer threads first, then several passes. Pure.

    Args:
        sizes: bytes of each tensor for one sample, in graph order.
        threads: samples that may run at the same time.
        base: bytes that the process needs with the model loaded and one sample run.
        limit: bytes that the process should stay below.

    Raises:
        ConfigError: the largest tensor does not fit beside `base`.
    """
    room, largest = limit - base, max(sizes.values(), default=0)
    if room < largest:
        enough = (base + largest) / MIB + 1
        raise ConfigError(
            f"memory limit {limit / MIB:.0f} MiB: the model and one sample take {base / MIB:.0f} MiB, "
            f"the largest tensor {largest / MIB:.1f} MiB more; give at least {enough:.0f} MiB"
        )
    total = sum(sizes.values())
    if total <= room:
        return MemoryPlan(max(1, min(threads, room // max(total, 1))), (tuple(sizes),))
    return MemoryPlan(1, _packed(sizes, room))


def _packed(sizes: Mapping[str, int], room: int) -> tuple[tuple[str, ...], ...]:
    """Split the tensors, in order, into groups that fit."""
    groups: list[list[str]] = [[]]
    used = 0
    for name, size in sizes.items():
        if groups[-1] and used + size > room:
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += size
    return tuple(map(tuple, groups))


def one_pass(names: Sequence[str], threads: int) -> MemoryPlan:
    """Return the layout without a limit."""
    return MemoryPlan(threads, (tuple(names),))
