"""How many samples run at the same time, and which tensors in each pass, to stay below a memory limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import ConfigError
from ..instrumentation.live_memory import LiveMemory, live_memory
from ..records.histogram import BINS
from ..runtime.providers import give_memory_back, used_bytes
from ..runtime.session import run_sample, size_name, size_session
from ..samples.samples import fixed_shapes
from ..samples.values import Sample, Samples
from .sample_pass import ProfilingModel

MIB = 1 << 20

OBSERVER_BYTES = 2 * 8 * BINS
"""What the observer of a tensor takes: its bins, and once more when its profile is made."""


@dataclass(frozen=True)
class MemoryPlan:
    """How a run is laid out; the limit is in bytes, and `ahead` whether samples are read while others run."""

    threads: int
    passes: tuple[tuple[str, ...], ...]
    memory_limit: int | None = None
    ahead: bool = True


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that one sample takes: of the process, the inputs, and the runtime besides tensors.

    `sources` has the value of the graph that holds each observed tensor, None for an input.
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


def plan_run(model: ProfilingModel, samples: Samples, earlier: MemoryPlan | None = None) -> MemoryPlan:
    """Return the layout of a run; a resumed one keeps its passes, as new measurements differ a little."""
    limit, threads = model.settings.memory_limit, model.settings.samples_at_once
    one_pass = (tuple(observation.name for observation in model.read_observations),)
    if limit is None:
        return MemoryPlan(threads, one_pass)
    give_memory_back()
    if earlier is not None and earlier.memory_limit == limit:
        return replace(earlier, threads=min(earlier.threads, threads))
    if fixed_shapes(model.specs):
        largest = next(iter(samples), None)  # every sample has as many bytes
    else:
        runs = (run for sample in samples for run in model.runs_of(sample))
        largest = max(runs, key=lambda run: sum(a.nbytes for a in run.arrays.values()), default=None)
    if largest is None:
        return MemoryPlan(1, one_pass)
    return plan_memory(measured_need(model, largest, limit), threads, limit)


def measured_need(model: ProfilingModel, sample: Sample, limit: int) -> MemoryNeed:
    """Return the need of a sample, by a run of it if its shapes allow one below the limit."""
    observations, graph = model.read_observations, model.graph.model
    sources = {o.name: None if o.source is None else model.graph.sources[o.source] for o in observations}

    # The bytes of each observed value, as far as the declared shapes and those of the inputs tell.
    free: dict[str, int] = {}
    for spec in model.specs:
        for dim, size in zip(spec.shape or (), sample.arrays[spec.name].shape, strict=False):
            if isinstance(dim, str):
                free[dim] = size
    expected = {}
    for o in observations:
        source = sources[o.name]
        if source is None or o.shape is None or o.scan_axes is not None:
            continue
        dims = [dim if isinstance(dim, int) else free.get(str(dim.value)) for dim in o.shape]
        if None not in dims:
            elements = math.prod(dim for dim in dims if dim is not None)
            expected[source] = elements * int(o.dtype.itemsize)

    session = size_session(model.graph, [o.source for o in observations if o.source is not None])
    used_before = used_bytes()
    need = MemoryNeed(
        base=used_before + OBSERVER_BYTES * len(sources),
        sample=sum(array.nbytes for array in sample.arrays.values()),
        kernels=0,
        live=live_memory(graph, expected),
        sources=sources,
    )
    if _with_margin(need.base + need.live.peak()) > limit:
        raise _too_low(need, limit)
    outputs = run_sample(session, [output.name for output in session.get_outputs()], sample)
    used_after = used_bytes()

    measured = {}
    for o in observations:
        source = sources[o.name]
        if source is None:
            continue
        sequence = outputs.get(source)
        if isinstance(sequence, list):
            measured[source] = sum(array.nbytes for array in sequence)
        else:
            elements = int(np.asarray(outputs[size_name(source)]).item())
            measured[source] = elements * int(o.dtype.itemsize)
    live = live_memory(graph, measured)
    return replace(need, live=live, kernels=max(0, used_after - used_before - live.peak()))


def plan_memory(need: MemoryNeed, threads: int, limit: int) -> MemoryPlan:
    """Return the layout that stays below a limit in bytes: fewer threads first, then several passes. Pure."""
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
    # The tensors of a pass, in order, are as many as fit.
    groups: list[list[str]] = [[]]
    steps = need.live.steps
    for name, source in need.sources.items():
        added = need.live.with_outputs([source or ""]) - need.live.steps
        if groups[-1] and int((steps + added).max(initial=0)) > room:
            groups.append([])
            steps = need.live.steps
        groups[-1].append(name)
        steps = steps + added
    return MemoryPlan(1, tuple(map(tuple, groups)), limit, ahead=False)


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
