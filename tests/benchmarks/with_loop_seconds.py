"""qprof, with the seconds that running its plan on samples took: `python with_loop_seconds.py FILE.json ...`.

FILE.json gets what `closed_loop.plan_held_on_samples` took in all, of the clock and of the processor, and how
often it was called; the words behind it are those of the command `qprof`.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qprof_onnx.cli.entry import run
from qprof_onnx.quantizer.api import from_profile


def timed(function: Callable[..., Any], taken: dict[str, float]) -> Callable[..., Any]:
    """Return a function that does what the given one does, and adds up what its calls take."""

    def call(*args: Any) -> Any:
        clock, processor = time.perf_counter(), time.process_time()
        try:
            return function(*args)
        finally:
            taken["seconds"] += time.perf_counter() - clock
            taken["processor"] += time.process_time() - processor
            taken["calls"] += 1

    return call


def main() -> None:
    file, taken = Path(sys.argv.pop(1)), {"seconds": 0.0, "processor": 0.0, "calls": 0}
    name = "plan_held_on_samples"
    setattr(from_profile, name, timed(getattr(from_profile, name), taken))
    try:
        run()
    finally:
        file.write_text(json.dumps(taken), encoding="utf-8")


if __name__ == "__main__":
    main()
