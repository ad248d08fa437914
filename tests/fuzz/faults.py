"""Faults at random moments of every command, for as long as one likes: is each promise kept?

    python tests/fuzz/faults.py --seconds 600 --seed 1

Each turn starts a command on the digits model in a group of processes of its own and disturbs it: SIGKILL,
SIGTERM, SIGHUP or Ctrl-C at a random moment, to the process alone or to its group; files that may grow to
some size only, or a full disk (as root, a small tmpfs); an output folder or a
TMPDIR that is removed meanwhile. Then:

* the exit code is that of the signal, or 0, or 2 where the system refuses a file; stderr has one line more
  than without a fault, and no traceback;
* no process of the run is left, nor a file in TMPDIR or beside the outputs, except after SIGKILL;
* all outputs are new and whole, or all are what was there; after SIGKILL a new model has all its files;
* a run with a checkpoint is started again until it ends, and the bytes are the undisturbed ones.

Prints a table of the turns, and ends with exit code 1 if one broke a promise; `--turn N` repeats one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RUN = "from qprof_onnx.cli.entry import run; open('begun', 'w').close(); run()"
SMALL_WEIGHTS = "from qprof_onnx.quantizer.model import saving; saving.MIN_EXTERNAL_MODEL_BYTES = 1000; "
FILE_SIZE = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); "
PROGRESS = ("profiling:", "checked ", "samples", "trial")


class BrokenError(Exception):
    """A promise was not kept."""


@dataclass(frozen=True)
class Kind:
    """A command to disturb.

    Attributes:
        words: its arguments; inputs are in `in`, outputs go to `out`.
        resumed: whether it is started again until it ends.
        before: Python code that runs first.
        same_bytes: whether every run writes the same; not where time is measured.
        before_outputs: arguments of the run that made the files that are there before.
    """

    words: tuple[str, ...]
    resumed: bool = False
    before: str = ""
    same_bytes: bool = True
    before_outputs: tuple[str, ...] = ()


def _profiled(*options: str, **more: object) -> Kind:
    return Kind(("dump-profile", "in/m.onnx", "--data", "in/data", "-o", "out/p.yaml", *options), **more)  # type: ignore[arg-type]


def _quantized(*options: str, **more: object) -> Kind:
    words = (
        "quantize",
        "in/m.onnx",
        "--profile",
        "in/p.yaml",
        "-o",
        "out/q.onnx",
        "--save-plan",
        "out/q.yaml",
    )
    return Kind((*words, *options), **more)  # type: ignore[arg-type]


_MODELS = ("in/m.onnx", "in/q.onnx", "--data", "in/few")
_TUNED = ("tune", "in/m.onnx", "--profile", "in/p.yaml", "--data", "in/few", "--objective", "size")
_EXTERNAL = (
    "quantize",
    "in/x.onnx",
    "--profile",
    "in/p.yaml",
    "-o",
    "out/q.onnx",
    "--save-plan",
    "out/q.yaml",
)

KINDS = {
    "dump-profile, checkpoint": _profiled("--checkpoint", "progress", "--every", "0", resumed=True),
    "dump-profile, checkpoint, limit": _profiled(
        "--checkpoint", "progress", "--every", "0.05", "--memory-limit", "4G", resumed=True
    ),
    "dump-profile, by row": _profiled(
        "--checkpoint", "progress", "--every", "0.01", "--by-row", resumed=True
    ),
    "dump-profile, threads": _profiled("--threads", "3"),
    "quantize": _quantized(),
    "quantize, weights in a file": Kind(
        _EXTERNAL, before=SMALL_WEIGHTS, before_outputs=(*_EXTERNAL, "--calibrator", "minmax")
    ),
    "quantize, check speed": _quantized("--check-speed", "--data", "in/few", same_bytes=False),
    "quantize, gptq": _quantized("--rounding", "gptq", "--data", "in/few"),
    "quantize, gptaq": _quantized("--rounding", "gptaq", "--data", "in/few"),
    "evaluate": Kind(("evaluate", *_MODELS)),
    "compare-layers": Kind(("compare-layers", *_MODELS)),
    "sensitivity": Kind(
        ("sensitivity", "in/m.onnx", "--profile", "in/p.yaml", "--data", "in/few", "--limit", "2")
    ),
    "tune": Kind((*_TUNED, "-o", "out/q.onnx", "--save-plan", "out/q.yaml")),
    "merge": Kind(("merge", "in/s0.yaml", "in/s1.yaml", "-o", "out/p.yaml")),
    "instrument": Kind(("instrument", "in/m.onnx", "-o", "out/i.onnx")),
}


@dataclass
class Undisturbed:
    """What a kind does without faults.

    Attributes:
        seconds: from the moment when `run` is called to the end.
        errors: lines on stderr.
        old: files that are there before, by name.
        new: files that are there after it.
    """

    seconds: float
    errors: list[str]
    old: dict[str, bytes]
    new: dict[str, bytes]


@dataclass
class Place:
    """The folders of a turn, in one of their own.

    Attributes:
        root: current folder of the command.
        kind: what is run.
        code: Python that runs before it.
        process: the run.
        mounted: folders that are disks of their own.
    """

    root: Path
    kind: Kind
    code: str = ""
    process: subprocess.Popen[str] = field(init=False)
    mounted: list[Path] = field(default_factory=list)

    def start(self, words: Sequence[str] = ()) -> None:
        """Start the command in a group of its own, with a TMPDIR of its own."""
        code = self.code + self.kind.before + RUN
        if not self.mounted:  # what was killed before may have left something
            shutil.rmtree(self.root / "tmp", ignore_errors=True)
            (self.root / "tmp").mkdir()
        (self.root / "begun").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *(words or self.kind.words)],
            cwd=self.root,
            env=os.environ | {"TMPDIR": str(self.root / "tmp")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def await_begin(self) -> None:
        """Wait until Python runs the command."""
        while not (self.root / "begun").exists() and self.process.poll() is None:
            time.sleep(0.002)

    def errors(self) -> list[str]:
        """Wait for the end, of all processes of the group; return the lines on stderr but progress."""
        lines = self.process.communicate(timeout=300)[1].splitlines()
        end = time.monotonic() + 10
        while left := alive(self.process.pid):
            if time.monotonic() > end:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise BrokenError(f"processes {left} are left")
            time.sleep(0.02)
        return [line for line in lines if line and not any(word in line for word in PROGRESS)]

    def outputs(self) -> dict[str, bytes]:
        """Return all files in the output folder, hidden ones too."""
        files = (
            path for path in (self.root / "out").rglob("*") if not path.is_dir() or not any(path.iterdir())
        )
        return {path.name: b"" if path.is_dir() else path.read_bytes() for path in files}

    def temporary(self) -> list[str]:
        """Return what is left in TMPDIR; `.ses` is onnxruntime's own."""
        place = self.root / "tmp"
        return [path.name for path in place.iterdir() if path.name != ".ses"] if place.exists() else []


def alive(group: int) -> list[int]:
    """Return the processes of a group that run."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            pids.append(int(stat.parent.name))
    return pids


@contextmanager
def place_for(kind: Kind, folder: Path, old: dict[str, bytes]) -> Iterator[Place]:
    """Make the folders of a turn, with outputs that were there before, and remove them."""
    root = Path(tempfile.mkdtemp(dir=folder))
    for name in ("tmp", "out"):
        (root / name).mkdir()
    (root / "in").symlink_to(folder / "in")
    for name, content in old.items():
        (root / "out" / name).write_bytes(content)
    place = Place(root, kind)
    try:
        yield place
    finally:
        if hasattr(place, "process") and place.process.poll() is None:
            os.killpg(place.process.pid, signal.SIGKILL)
            place.process.communicate()
        for disk in place.mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False)
        shutil.rmtree(root)


# Faults -----------------------------------------------------------------------------------------------------

Fault = Callable[[Place, random.Random, Undisturbed], str]


def a_signal(place: Place, chance: random.Random, usual: Undisturbed) -> str:
    """Send a signal at a random moment; return which, and to whom."""
    place.start()
    place.await_begin()
    time.sleep(chance.uniform(0.0, 1.1 * usual.seconds))
    pid = place.process.pid
    whom = chance.choice(["process", "group"])
    number = chance.choice(SIGNALS)
    with suppress(ProcessLookupError):
        (os.killpg if whom == "group" else os.kill)(pid, number)
    return f"{number.name} {whom}"


def small_files(place: Place, chance: random.Random, usual: Undisturbed) -> str:
    """Let no file grow beyond a random size."""
    largest = max(map(len, usual.new.values()), default=100_000)
    place.code = FILE_SIZE.format(chance.randint(0, largest))
    place.start()
    return "file size"


def full_disk(place: Place, chance: random.Random, usual: Undisturbed) -> str:
    """Let the output or TMPDIR be on a small disk."""
    name = chance.choice(["out", "tmp"])
    disk, size = place.root / name, 4096 * chance.randint(1, 80)
    before = place.outputs() if name == "out" else {}
    size += sum(-(-len(content) // 4096) * 4096 for content in before.values())
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
    place.mounted.append(disk)
    for file, content in before.items():
        (disk / file).write_bytes(content)
    place.start()
    return f"full {name}"


def lost_folder(place: Place, chance: random.Random, usual: Undisturbed) -> str:
    """Remove the output folder, or TMPDIR, at a random moment."""
    name = chance.choice(["out", "tmp"])
    place.start()
    place.await_begin()
    time.sleep(chance.uniform(0.0, usual.seconds))
    for _ in range(100):
        with suppress(OSError):
            shutil.rmtree(place.root / name)
            break
    return f"lost {name}"


def read_only(place: Place, chance: random.Random, usual: Undisturbed) -> str:
    """Let the output folder be one that nobody may write, not even root."""
    disk = place.root / "out"
    before = place.outputs()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)
    place.mounted.append(disk)
    for file, content in before.items():
        (disk / file).write_bytes(content)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    place.start()
    return "read-only out"


def faults() -> list[Fault]:
    """Return the faults that this system allows, the frequent ones several times."""
    with tempfile.TemporaryDirectory() as disk:
        may_mount = not subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True, check=False
        ).returncode
        if may_mount:
            subprocess.run(["umount", disk], check=True)
    disks = [full_disk, full_disk, read_only] if may_mount else []
    return [*[a_signal] * 12, small_files, small_files, lost_folder, *disks]


# Promises ---------------------------------------------------------------------------------------------------


def check(place: Place, fault: str, usual: Undisturbed) -> None:
    """Check what a disturbed run leaves."""
    errors, code = place.errors(), place.process.returncode
    name = fault.split(maxsplit=1)[0]
    number = getattr(signal, name) if name in signal.Signals.__members__ else None
    allowed = {0, 2} if number is None else {0, 128 + number, -number}
    if name == "SIGINT":
        allowed = {0, 130} if errors else {0, 130, -number}  # while Python ends, when all is done
    if code not in allowed:
        raise BrokenError(f"exit code {code}: {errors}")
    more = [line for line in errors if line not in usual.errors]
    killed = number is signal.SIGKILL
    if not killed and (len(more) > 1 or any(word in " ".join(more) for word in ("Traceback", "internal"))):
        raise BrokenError("\n".join(more))
    left = [] if killed else place.temporary()
    if left:
        raise BrokenError(f"left in TMPDIR: {left}")
    if fault != "lost out":
        check_outputs(place, code, killed, usual)


def check_outputs(place: Place, code: int, killed: bool, usual: Undisturbed) -> None:
    """Check that the outputs are old, or new and whole."""
    found = place.outputs()
    if killed:
        found = {name: content for name, content in found.items() if name in usual.old | usual.new}
    if found == usual.old and (code or not usual.new):
        return
    main = next(iter(sorted(usual.new)), None)  # the model comes before its plan and its weights
    if place.kind.same_bytes:
        is_new = found == usual.new
        if killed and (main is None or found.get(main) == usual.old.get(main)):
            return
        if killed:
            is_new = all(found.get(name) == content for name, content in usual.new.items())
    else:
        is_new = set(found) == set(usual.new) and whole(place.root / "out")
        is_new = is_new and not (set(found.items()) & set(usual.old.items()))
    if not is_new:
        sizes = {name: len(content) for name, content in found.items()}
        raise BrokenError(f"outputs {sizes}, old {sorted(usual.old)}, new {sorted(usual.new)}")


def whole(folder: Path) -> bool:
    """Return whether a model and its plan can be read, and belong together."""
    import onnx
    from qprof_onnx.quantizer.plan.store import load_plan

    model = onnx.load(folder / "q.onnx")
    onnx.checker.check_model(model)
    load_plan(folder / "q.yaml")
    return True


def turn(
    chance: random.Random, folder: Path, name: str, usual: Undisturbed, possible: list[Fault]
) -> list[str]:
    """Disturb a command, and where it can be resumed, until it has ended by itself; return what was done."""
    kind, done = KINDS[name], list[str]()
    with place_for(kind, folder, usual.old) as place:
        for _ in range(chance.randint(1, 4) if kind.resumed else 1):
            place.code = ""
            fault = chance.choice(possible)
            try:
                done.append(fault(place, chance, usual))
                check(place, done[-1], usual)
            except BrokenError as broken:
                raise BrokenError(f"{name}, {done}: {broken}") from None
            if place.process.returncode == 0 or place.mounted or done[-1].startswith("lost"):
                return done
        if kind.resumed or done[-1].startswith("SIGKILL"):
            place.code = ""
            place.start()
            errors = place.errors()
            if place.process.returncode:
                raise BrokenError(f"{name}, {done}: the undisturbed end failed: {errors}")
            found = {file: content for file, content in place.outputs().items() if file in usual.new}
            if kind.same_bytes and found != usual.new:
                raise BrokenError(f"{name}, {done}: other bytes")
    return done


# ------------------------------------------------------------------------------------------------------------


def undisturbed(kind: Kind, folder: Path) -> tuple[Undisturbed, Undisturbed]:
    """Run a kind alone, in an empty folder and in one that has its outputs."""
    old: dict[str, bytes] = {}
    runs: list[Undisturbed] = []
    for again in range(2):
        if again and kind.before_outputs:
            with place_for(kind, folder, {}) as place:
                place.start(kind.before_outputs)
                place.errors()
                old = place.outputs()
        elif again:
            old = dict.fromkeys(runs[0].new, b"old\n")
        with place_for(kind, folder, old) as place:
            place.start()
            place.await_begin()
            begun = time.monotonic()
            errors = place.errors()
            if place.process.returncode:
                sys.exit(f"{kind.words} fails without a fault: {errors}")
            runs.append(Undisturbed(time.monotonic() - begun, errors, old, place.outputs()))
    return runs[0], runs[1]


def prepare(folder: Path, samples: int) -> None:
    """Make the inputs of all kinds."""
    import onnx

    place = folder / "in"
    for name in ("data", "few", "0", "1"):
        (place / name).mkdir(parents=True)
    files = sorted((DIGITS / "calibration").glob("*.npz"))
    for number in range(samples):
        shutil.copy(files[number % len(files)], place / "data" / f"{number}.npz")
    for number, file in enumerate(files):
        shutil.copy(file, place / "few")
        shutil.copy(file, place / str(number % 2))
    shutil.copy(DIGITS / "model.onnx", place / "m.onnx")
    onnx.save(
        onnx.load(place / "m.onnx"),
        place / "x.onnx",
        save_as_external_data=True,
        location="x.bin",
        size_threshold=100,
    )
    qprof = [sys.executable, "-P", "-c", "from qprof_onnx.cli.entry import run; run()"]
    for data, name in (("few", "p"), ("0", "s0"), ("1", "s1")):
        words = ["dump-profile", "m.onnx", "--data", data, "-o", f"{name}.yaml"]
        subprocess.run([*qprof, *words], cwd=place, check=True, capture_output=True)
    words = ["quantize", "m.onnx", "--profile", "p.yaml", "-o", "q.onnx"]
    subprocess.run([*qprof, *words], cwd=place, check=True, capture_output=True)


def main() -> None:
    """Run turns until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--only", help="part of the names of kinds")
    parser.add_argument("--turn", type=int, help="this turn alone")
    given = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell lets processes in the background ignore it
    tried, kept, broken = Counter[str](), Counter[str](), list[str]()
    by_fault = Counter[str]()
    names, possible = [name for name in KINDS if (given.only or "") in name], faults()
    with tempfile.TemporaryDirectory(prefix="qprof-faults-") as home:
        folder = Path(home)
        prepare(folder, given.samples)
        usual: dict[str, tuple[Undisturbed, Undisturbed]] = {}
        end, number = time.monotonic() + given.seconds, given.turn or 0
        while time.monotonic() < end:
            chance = random.Random(f"{given.seed} {number}")
            name = chance.choice(names)
            if name not in usual:
                usual[name] = undisturbed(KINDS[name], folder)
            tried[name] += 1
            try:
                done = turn(chance, folder, name, chance.choice(usual[name]), possible)
                kept[name] += 1
                print(number, name, *done, flush=True)
                by_fault.update(done)
            except BrokenError as error:
                broken.append(f"turn {number}: {error}")
                print(f"BROKEN {broken[-1]}", flush=True)
            number += 1
            if given.turn is not None:
                break
    print("| kind | tried | kept promises |\n|---|---|---|")
    for name in names:
        print(f"| {name} | {tried[name]} | {kept[name]} |")
    print(f"| all | {tried.total()} | {kept.total()} |\n\nFaults: {dict(sorted(by_fault.items()))}")
    if broken:
        sys.exit(f"seed {given.seed}: {len(broken)} turns broke a promise")


if __name__ == "__main__":
    main()
