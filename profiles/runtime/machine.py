"""Cores that this process may use, and the memory that it uses."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

from ..base.errors import ConfigError

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""


def used_bytes() -> int:
    """Return the memory that this process uses; where the system does not report it, the peak so far.

    Raises:
        ConfigError: the system reports neither.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        raise ConfigError(
            "memory limit: this system does not report the memory of a process; leave the limit out"
        ) from None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def give_memory_back() -> None:
    """Let the C library give every block of a mebibyte or more back to the system when it is freed.

    glibc otherwise keeps blocks of up to 32 MiB, of each thread apart. Other libraries are left as they are.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)
