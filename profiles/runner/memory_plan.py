"""How many samples run side by side, and which tensors at a time, so that the process stays below a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True)
class MemoryPlan:
    """How a run is laid out.

    Attributes:
        threads: samples that run side by side.
        passes: the tensors of each run over all samples.
    """

    threads: int
    passes: tuple[tuple[str, ...], ...]


def plan_memory(sizes: Mapping[str, int], threads: int, base: int, limit: int) -> MemoryPlan:
    """Return how to stay below a limit: fewer threads first, then several passes. Pure.

    Args:
        sizes: bytes of each tensor for one sample, in graph order.
        threads: samples that may run side by side.
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
