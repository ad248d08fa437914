"""A calibration whose samples lie in a failing object store: killed, resumed, compared with a local one.

    python tests/benchmarks/object_store_run.py MODEL.onnx FOLDER [--preprocess NAME] [--kills 3] [--write]

Serves the files of FOLDER from an S3-compatible server on this machine (moto), which answers `--faults` of
the requests for an object with 503 or drops the connection in the middle. `qprof dump-profile` reads them by
their URL, is killed with SIGKILL at seeded random moments and started again with the same `--checkpoint`.
The sha256 of its profile is that of a run on the local folder, or the script ends with exit code 1.
`--write` writes OBJECT_STORE.md beside this script. Needs the extras `test` and `remote`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "profiles" / "samples"))

from object_store import BUCKET, ObjectStore, object_store  # noqa: E402

QPROF = [sys.executable, "-c", "from qprof_onnx.cli.entry import run; run()"]


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


def lines(arguments: argparse.Namespace) -> list[str]:
    """Run everything and return the rows of the page."""
    options = ["--preprocess", arguments.preprocess] if arguments.preprocess else []
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        local, remote = Path(folder, "local.yaml"), Path(folder, "remote.yaml")
        plain = profiled(arguments.model, str(arguments.folder), local, options)
        rows = [f"| local folder | {plain:.1f} | {digest(local)} |"]
        with object_store(patch) as store:
            store.put(arguments.folder)
            url = f"s3://{BUCKET}/set"
            whole = profiled(arguments.model, url, remote, options)
            rows.append(f"| {url} | {whole:.1f} | {digest(remote)} |")
            remote.unlink()
            make_faulty(store, arguments.faults, arguments.seed)
            store.requests.clear()
            kept = [*options, "--checkpoint", str(Path(folder, "checkpoint")), "--every", "0.5"]
            for kill in range(arguments.kills):
                seconds = profiled(arguments.model, url, remote, kept, rng.uniform(0.4, 0.8) * whole)
                rows.append(f"| kill {kill + 1} | {seconds:.1f} | - |")
            last = profiled(arguments.model, url, remote, kept)
            rows.append(f"| the same command again | {last:.1f} | {digest(remote)} |")
        files, asked = len(list(arguments.folder.rglob("*.*"))), sum(store.requests.values())
        rows += [
            "",
            f"{files} objects, {asked} requests in all runs with faults ({arguments.faults:.0%} failing).",
        ]
        if digest(local) != digest(remote):
            sys.exit("\n".join([*rows, "the profiles differ"]))
    return rows


def digest(path: Path) -> str:
    """Return the beginning of the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main() -> None:
    """Run, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preprocess")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--faults", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    table = ["| run | seconds | sha256 of the profile |", "|---|---|---|", *lines(arguments)]
    print("\n".join(table))
    if arguments.write:
        about = (
            "# Samples in an object store that fails\n\n"
            f"`object_store_run.py` with `{arguments.model.name}`, {arguments.kills} kills.\n"
        )
        (HERE / "OBJECT_STORE.md").write_text("\n".join([about, *table, ""]))


if __name__ == "__main__":
    main()
