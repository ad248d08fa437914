"""How many samples run at the same time, and which tensors in each pass, to stay below a memory limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import ConfigError
from ..instrumentation.live_memory import LiveMemory, live_memory
from ..records.histogram import BINS
from ..runtime.providers import give_memory_back, used_bytes
from ..runtime.session import run_sample, size_name, size_session
from ..samples.samples import fixed_shapes
from ..samples.values import Sample, Samples
from .sample_pass import ProfilingModel, runs_of

MIB = 1 << 20

OBSERVER_BYTES = 2 * 8 * BINS
"""What the observer of a tensor takes: its bins, and once more when its profile is made."""


@dataclass(frozen=True)
class MemoryPlan:
    """How a run is laid out.

    Attributes:
        threads: samples that run at the same time.
        passes: the tensors of each run over all samples.
        memory_limit: for which this was laid out, in bytes; None for none.
        ahead: whether samples are read while others run.
    """

    threads: int
    passes: tuple[tuple[str, ...], ...]
    memory_limit: int | None = None
    ahead: bool = True


@dataclass(frozen=True)
class MemoryNeed:
    """What one sample takes.

    Attributes:
        base: bytes of the process with the model loaded and one sample read.
        sample: bytes of the inputs of a sample.
        kernels: bytes that the runtime takes besides the tensors.
        live: the tensors while the graph runs.
        sources: the observed tensors, in graph order, and the value of the graph that holds each; None for
            an input.
    """

    base: int
    sample: int
    kernels: int
    live: LiveMemory
    sources: dict[str, str | None]

    def least(self) -> int:
        """Return the least limit that the model can be profiled with, in bytes: one tensor in each pass."""
        return (
            self.base
            + self.kernels
            + max((self.live.peak([s or ""]) for s in self.sources.values()), default=0)
        )


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
    give_memory_back()
    if before is not None:
        return replace(before, threads=min(before.threads, settings.samples_at_once))
    if fixed_shapes(model.specs):
        largest = next(iter(samples), None)  # every sample has as many bytes
    else:
        runs = (run for sample in samples for run in runs_of(model, sample))
        largest = max(runs, key=lambda run: sum(a.nbytes for a in run.arrays.values()), default=None)
    if largest is None:
        return one_pass(names, 1)
    return _measured_plan(model, largest, settings.memory_limit)


def _measured_plan(model: ProfilingModel, largest: Sample, limit: int) -> MemoryPlan:
    """Return the layout for a limit, from what the largest sample needs."""
    return plan_memory(_measured(model, largest, limit), model.settings.samples_at_once, limit)


def _measured(model: ProfilingModel, sample: Sample, limit: int) -> MemoryNeed:
    """Return what a sample needs: by running it, if that stays below the limit by what its shapes say.

    Raises:
        ConfigError: it does not, so the limit is too low.
    """
    sources = {o.name: None if o.source is None else model.graph.sources[o.source] for o in model.read}
    inputs = sum(array.nbytes for array in sample.arrays.values())
    graph, observers = model.graph.model, OBSERVER_BYTES * len(sources)
    with size_session(model.graph, [o.source for o in model.read if o.source is not None]) as session:
        base = used_bytes()
        expected = live_memory(graph, _declared_sizes(model, sample))
        need = MemoryNeed(base + observers, inputs, 0, expected, sources)
        if _with_margin(need.base + expected.peak()) > limit:
            raise _too_low(need, limit)
        outputs = run_sample(session, [output.name for output in session.get_outputs()], sample)
        after = used_bytes()
    sizes = {}
    for o in model.read:
        source = sources[o.name]
        if source is not None:
            whole = outputs.get(source)
            elements = 0 if isinstance(whole, list) else int(np.asarray(outputs[size_name(source)]).item())
            sizes[source] = (
                sum(array.nbytes for array in whole)
                if isinstance(whole, list)
                else elements * int(o.dtype.itemsize)
            )
    live = live_memory(graph, sizes)
    return replace(need, live=live, kernels=max(0, after - base - live.peak()))


def _declared_sizes(model: ProfilingModel, sample: Sample) -> dict[str, int]:
    """Return the bytes of each observed value, as far as the declared shapes and those of the inputs tell."""
    free: dict[str, int] = {}
    for spec in model.specs:
        for dim, size in zip(spec.shape or (), sample.arrays[spec.name].shape, strict=False):
            if isinstance(dim, str):
                free[dim] = size
    sizes = {}
    for o in model.read:
        if o.source is None or o.shape is None or o.scan_axes is not None:
            continue
        dims = [dim if isinstance(dim, int) else free.get(str(dim.value)) for dim in o.shape]
        if None not in dims:
            elements = math.prod(dim for dim in dims if dim is not None)
            sizes[model.graph.sources[o.source]] = elements * int(o.dtype.itemsize)
    return sizes


def plan_memory(need: MemoryNeed, threads: int, limit: int) -> MemoryPlan:
    """Return how to stay below a limit: fewer threads first, then several passes. Pure.

    Args:
        need: of one sample.
        threads: samples that may run at the same time.
        limit: bytes that the process should stay below.

    Raises:
        ConfigError: the largest tensor does not fit.
    """
    names, room = tuple(need.sources), limit - need.base - need.kernels
    whole = need.live.peak([source for source in need.sources.values() if source])
    for at_once in range(threads, 0, -1):
        more = (at_once - 1) * (whole + need.kernels + OBSERVER_BYTES * len(names)) + at_once * need.sample
        if whole + more <= room:
            return MemoryPlan(at_once, (names,), limit)
    if whole <= room:
        return MemoryPlan(1, (names,), limit, ahead=False)
    if limit < need.least():
        raise _too_low(need, limit)
    return MemoryPlan(1, _packed(need, room), limit, ahead=False)


def _too_low(need: MemoryNeed, limit: int) -> ConfigError:
    least = need.least()
    enough = max(_with_margin(least - need.kernels), least + 2 * MIB)
    return ConfigError(
        f"memory limit {limit / MIB:.0f} MiB: the model and the inputs of one sample take "
        f"{need.base / MIB:.0f} MiB, running it {(least - need.base) / MIB:.1f} MiB more; "
        f"give at least {math.ceil(enough / MIB)} MiB"
    )


def _with_margin(size: int) -> int:
    """Return somewhat more bytes: kernels take some for themselves, and no two processes use the same."""
    return size + size // 32 + 8 * MIB


def _packed(need: MemoryNeed, room: int) -> tuple[tuple[str, ...], ...]:
    """Split the tensors, in order, into groups that fit."""
    groups: list[list[str]] = [[]]
    steps = need.live.steps
    for name, source in need.sources.items():
        added = need.live.with_outputs([source or ""]) - need.live.steps
        if groups[-1] and int((steps + added).max(initial=0)) > room:
            groups.append([])
            steps = need.live.steps
        groups[-1].append(name)
        steps = steps + added
    return tuple(map(tuple, groups))


def one_pass(names: Sequence[str], threads: int) -> MemoryPlan:
    """Return the layout without a limit."""
    return MemoryPlan(threads, (tuple(names),))
