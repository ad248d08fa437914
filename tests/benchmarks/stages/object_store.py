"""A calibration whose samples lie in a failing object store: killed, resumed, compared with a local one.

    python tests/benchmarks/run.py object-store --work DIR --model MODEL.onnx --folder FOLDER

Serves the files of FOLDER from an S3-compatible server on this machine (moto), which answers `--faults` of
the requests for an object with 503 or drops the connection in the middle. `qprof dump-profile` reads them by
their URL, is killed with SIGKILL at seeded random moments and started again with the same `--checkpoint`.
The sha256 of its profile is that of a run on the local folder, or the script ends with an error. Needs
the extras `test` and `remote`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from frame import HERE, Row, Rows, Stage, table
from workbench import QPROF, digest_of

sys.path.insert(0, str(HERE.parent / "profiles" / "samples"))

# The server's module has the name of this one, which is in a package.
from object_store import BUCKET, ObjectStore, object_store


def profiled(model: Path, source: str, output: Path, options: list[str], limit: float | None = None) -> float:
    """Profile a source, killed after `limit` seconds; return the seconds that it took."""
    command = [*QPROF, "dump-profile", str(model), "--data", source, "-o", str(output), *options]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, told = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    else:
        if process.returncode:
            sys.exit(f"{source}: exit code {process.returncode}: {told}")
    return time.perf_counter() - begin


def make_faulty(store: ObjectStore, share: float, seed: int) -> None:
    """Let a share of the first requests for each object fail, chosen by the object's name."""

    def fault(name: str, before: int) -> str:
        drawn = random.Random(f"{seed} {name} {before}").random()
        return "" if drawn >= share or before > 3 else ("503" if drawn < share / 2 else "drop")

    store.fault = fault


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Run everything and yield a row for each run, then the numbers of objects and requests."""
    options = ["--preprocess", given.preprocess] if given.preprocess else []
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        local, remote = Path(folder, "local.yaml"), Path(folder, "remote.yaml")
        plain = profiled(given.model, str(given.folder), local, options)
        yield {"run": "local folder", "seconds": plain, "digest": digest_of(local)[:16]}
        with object_store(patch) as store:
            store.put(given.folder)
            url = f"s3://{BUCKET}/set"
            whole = profiled(given.model, url, remote, options)
            yield {"run": url, "seconds": whole, "digest": digest_of(remote)[:16]}
            remote.unlink()
            make_faulty(store, given.faults, given.seed)
            store.requests.clear()
            kept = [*options, "--checkpoint", str(Path(folder, "checkpoint")), "--every", "0.5"]
            for kill in range(given.kills):
                taken = profiled(given.model, url, remote, kept, rng.uniform(0.4, 0.8) * whole)
                yield {"run": f"kill {kill + 1}", "seconds": taken, "digest": "-"}
            taken = profiled(given.model, url, remote, kept)
            yield {"run": "the same command again", "seconds": taken, "digest": digest_of(remote)[:16]}
        if digest_of(local) != digest_of(remote):
            raise RuntimeError("the profiles differ")
    files = len(list(given.folder.rglob("*.*")))
    yield {
        "model": given.model.name,
        "files": files,
        "asked": sum(store.requests.values()),
        "faults": given.faults,
    }


def page(rows: Rows) -> str:
    ((*runs, last),) = rows.values()
    cells = [[row["run"], f"{row['seconds']:.1f}", row["digest"]] for row in runs]
    return (
        f"{last['model']}.\n\n{table(['run', 'seconds', 'sha256 of the profile'], cells)}\n\n"
        f"{last['files']} objects, {last['asked']} requests in all runs with faults "
        f"({last['faults']:.0%} failing)."
    )


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--model", type=Path)
    parser.add_argument("--folder", type=Path, help="of samples")
    parser.add_argument("--preprocess")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--faults", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)


STAGE = Stage(rows, {"OBJECT_STORE.md": page}, (), options)
