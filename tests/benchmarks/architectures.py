"""Networks that nobody here wrote, each quantized in many ways: does anything break, and are estimates true?

    python tests/benchmarks/architectures.py --networks DIR --rows FILE.jsonl [--ways default,60]
        [--only WORD] [--subset 40] [--again ok,refused] [--write]

DIR is a folder that `architectures_torch.py` has filled. Each network is profiled on 32 samples and
quantized in the WAYS below for the runtime of this machine (target auto), with settings that bind and
settings that nobody combines. The result is held to this: no internal error, a model that onnx.checker and
onnxruntime accept, finite outputs where float's are, and SQNR on eight other samples, as the model is written
(not optimised), in the band that was expected. FILE gets a line of JSON for each (network, way), which a
second run does not do again, but those whose status is named by --again. Networks run in processes of many,
each row with a limit of time, so that a crash is a row and not the end. --write does
nothing but write ARCHITECTURES.md beside this script, of all rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import session

PROFILED = 32
SECONDS = 180
SHOWN = 240
CLOCK = 5.0
"""Microseconds: what `costs.float_regions.MIN_REGION_SAVED_US` says of the tables."""
NOT_RUN = "not run by onnxruntime"
SAME = 120.0
"""SQNR (dB) of two runs of one model on the same samples, at least."""
HERE = Path(__file__).parent
PAGE = HERE / "ARCHITECTURES.md"
WAYS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "int8 everywhere": {"cost_model": "off"},
    "60 dB": {"min_output_sqnr": 60.0},
    "38 dB": {"min_output_sqnr": 38.0},
    "weight-only int4": {"mode": "weight-only", "weight_type": "int4", "block_size": 32},
    "weight-only int8": {"mode": "weight-only"},
    "dynamic": {"mode": "dynamic"},
    "power of two": {"weight_type": "int7", "schema": "symmetric-power2", "target": "onnx"},
    "16 bits": {"activation_type": "uint16"},
    "with data": {"min_output_sqnr": 38.0},
    "random 1": {},
    "random 2": {},
}
JUDGED: Mapping[str, Any] = {"fix": "auto", "budget": 3.0}
"""Of the way in which qprof holds samples out, judges its result on them, and mends it."""

FAMILIES = {"layers": "layers and small networks of torch.nn", "timm": "timm", "transformers": "transformers"}
STATUSES = {
    "ok": "in band, or no band",
    "above its band": "above",
    "below its band on new samples": "below, on new samples only",
    "below its band": "below",
    "refused": "refused",
    "not finite": "not finite",
    "not a model": "not a model",
    "internal error": "internal error",
    "crash": "crash",
    "time": "too long",
}
"""What can become of a network in one way, from the best to the worst, and the heading of its column."""


def random_settings(seed: int) -> dict[str, Any]:
    """Return settings that nobody combines."""
    rng = random.Random(seed)
    choices: dict[str, Sequence[Any]] = {
        "target": (*("auto", "auto", "onnx", "onnxruntime-arm", "tensorrt", "openvino", "qnn", "migraphx"),),
        "mode": ("static", "static", "static", "auto", "dynamic", "weight-only"),
        "form": ("qdq", "qdq", "qoperator", "integer", "primitives", "regions"),
        "schema": ("asymmetric", "symmetric", "symmetric-uint8", "symmetric-power2"),
        "calibrator": ("mse", "minmax", "percentile:99.9", "kl"),
        "activation_type": ("uint8", "int8", "uint16", "int16"),
        "inter_layer": ("quantized", "float"),
        "weight_schema": ("symmetric", "asymmetric", "symmetric-power2"),
        "granularity": ("per-channel", "per-tensor"),
        "lookup_tables": ("target", "runtime", "sigmoid", "portable", "off"),
        "scale_sharing": ("auto", "unified", "separate"),
        "min_tensor_sqnr": (0.0, 20.0, 45.0),
        "min_output_sqnr": (0.0, 25.0, 45.0),
        "equalization": ("auto", "free", "off"),
        "bias_correction": ("auto", "off"),
        "cost_model": ("auto", "off", "off"),
    }
    while True:
        names = rng.sample(sorted(choices), rng.randint(4, 9))
        settings = {name: rng.choice(choices[name]) for name in names} | {"weight_type": "int7"}
        with contextlib.suppress(ConfigError):  # settings that exclude each other are drawn anew
            load_recipe(settings.get("target", "auto"), {k: v for k, v in settings.items() if k != "target"})
            return settings


def settings_of(way: str, network: str) -> dict[str, Any]:
    """Return the settings of a way."""
    if way.startswith("random"):
        return {"target": "auto"} | random_settings(zlib.crc32(f"{network} {way}".encode()))
    return {"target": "auto"} | WAYS[way]


def samples_of(folder: Path) -> list[dict[str, Any]]:
    """Return the samples of a network: of the inputs that its exporter has left in."""
    import onnx

    inputs = {value.name for value in onnx.load(folder / "model.onnx", load_external_data=False).graph.input}
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    with np.load(folder / "samples.npz") as arrays:
        for key in arrays.files:
            number, _, name = key.partition(" ")
            if name in inputs:
                found[int(number)][name] = arrays[key]
    return [found[number] for number in sorted(found)]


Outputs = list[dict[str, Any]]


def outputs_of(path: Path, samples: Iterable[Mapping[str, Any]], optimised: bool) -> Outputs:
    """Return the outputs of a model for each sample, of those inputs that it has."""
    running = session(path, 1, optimised=optimised)
    inputs = {i.name for i in running.get_inputs()}
    names = [o.name for o in running.get_outputs()]
    return [
        dict(zip(names, running.run(None, {k: v for k, v in s.items() if k in inputs}), strict=True))
        for s in samples
    ]


def sqnr_of(floats: Outputs, others: Outputs) -> tuple[dict[str, float], bool]:
    """Return the SQNR (dB) of each output over all samples, and whether all is finite that should be."""
    from qprof_onnx.quantizer.evaluation.compare import sums_along

    found, finite = {}, True
    for name in floats[0]:
        if floats[0][name].dtype.kind != "f":
            continue
        total = None
        for one, other in zip(floats, others, strict=True):
            if one[name].shape != other[name].shape:
                return {name: -999.0}, False
            (sums,) = sums_along(one[name], other[name], (None,))
            total = sums if total is None else total.added(sums)
        if total is not None:
            difference = total.difference()
            finite = finite and not difference.non_finite
            found[name] = float(np.clip(difference.sqnr, -999.0, 999.0))
    return found, finite


def predicted_microseconds(result: Any) -> list[float] | None:
    """Return how long float and the plan are predicted to take; None without a table of times."""
    from qprof_onnx.quantizer.costs.predicted import CostModel, total_microseconds

    facts = result.facts
    if facts is None or facts.recipe.costs is None:
        return None
    graph, plan = result.planned.graph, result.plan
    model = CostModel(graph, facts.profile, facts.recipe.costs)
    after = total_microseconds(model.costs(plan), graph, plan)
    return [round(sum(model.floating.values()), 1), round(after, 1)]


def is_slower(row: Mapping[str, Any]) -> bool:
    """Whether a plan is predicted to be slower than float by more than the table's clock can tell."""
    before, after = row.get("microseconds") or (0.0, 0.0)
    return after - before > CLOCK


def quantized(network: Path, way: str, work: Path, floats: Outputs, told: dict[str, Any]) -> str:
    """Quantize a network in one way, fill in what is told of it, and return its status."""
    import onnx
    import qprof_onnx as qprof

    settings = settings_of(way, network.name)
    told["settings"] = settings
    out = work / "q.onnx"
    data = samples_of(network)[:PROFILED]
    profile = None if way in ("weight-only int4", "dynamic") else work / "profile.yaml"
    if way == "with data":
        told["settings"] = settings | JUDGED
        result = qprof.quantize(
            network / "model.onnx", data=data, output=out, latency=None, **settings, **JUDGED
        )
    else:
        result = qprof.quantize(network / "model.onnx", profile, out, **settings)
    told["kinds"] = dict(result.summary.counts)
    told["notes"] = list(result.notes)
    told["expected"] = {
        e.output: [round(db, 1) for db in (e.estimated, e.low, e.high)] for e in result.expected
    }
    told["microseconds"] = predicted_microseconds(result)
    try:
        onnx.checker.check_model(str(out), full_check=False)
    except onnx.checker.ValidationError as error:
        if "not registered" not in str(error) and "No Op registered" not in str(error):
            told["sentence"] = str(error)[:400]
            return "not a model"
    held = samples_of(network)[PROFILED:]
    if settings["target"] in ("auto", "onnx"):
        try:
            _, told["optimised finite"] = measured = sqnr_of(floats, outputs_of(out, held, True))
            told["optimised"] = {k: round(v, 1) for k, v in measured[0].items()}
        except Exception as error:
            told["sentence"] = f"optimised: {error}"[:400]
            return "not a model"
    try:
        measured, finite = sqnr_of(floats, outputs_of(out, held, False))
    except Exception as error:
        told["sentence"] = f"not optimised: {error}"[:400]
        return "not a model"
    told["measured"] = {k: round(v, 1) for k, v in measured.items()}
    if not finite:
        return "not finite"
    bands = {e.output: (e.low, e.high) for e in result.expected}
    if any(measured[name] < bands[name][0] for name in measured if name in bands):
        known, _ = sqnr_of(outputs_of(network / "model.onnx", data, False), outputs_of(out, data, False))
        told["measured on profiled"] = {k: round(v, 1) for k, v in known.items()}
        there = all(known[name] >= bands[name][0] for name in known if name in bands)
        return "below its band on new samples" if there else "below its band"
    high = any(measured[name] > bands[name][1] for name in measured if name in bands)
    return "above its band" if high else "ok"


def row_of(network: Path, way: str, work: Path, floats: Outputs | None) -> dict[str, Any]:
    """Return what becomes of a network in one way, or of its profile."""
    from qprof_onnx.cli.main import described

    told: dict[str, Any] = {**parts_of(network.name), "way": way}
    begun = time.perf_counter()
    try:
        if floats is None:
            import qprof_onnx as qprof

            qprof.dump_profile(network / "model.onnx", samples_of(network)[:PROFILED], work / "profile.yaml")
            status = "ok"
        else:
            status = quantized(network, way, work, floats, told)
    except Exception as error:
        text, code = described(error)
        status = "internal error" if code == 70 else "refused"
        told["sentence"] = text[:600]
        frames = traceback.extract_tb(error.__traceback__)
        told["where"] = [f"{Path(f.filename).name}:{f.name}:{f.lineno}" for f in frames[-4:]]
    return {**told, "status": status, "seconds": round(time.perf_counter() - begun, 2)}


def commit_here() -> str:
    """Return the commit of this checkout."""
    words = ["git", "describe", "--always", "--abbrev=8"]
    told = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def work_through(
    networks: Sequence[Path], ways: Sequence[str], done: set[tuple[str, str]], rows: Path
) -> None:
    """Write a row for each network and way that is not done; what is begun is printed before each."""
    commit = {"commit": commit_here()}
    for network in networks:
        missing = [way for way in ways if (network.name, way) not in done]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as folder, rows.open("a", encoding="utf-8") as file:
            print(json.dumps([network.name, "profile"]), flush=True)
            held = samples_of(network)[PROFILED:]
            try:
                floats = outputs_of(network / "model.onnx", held, False)
                outputs_of(network / "model.onnx", held[:1], True)
                again, _ = sqnr_of(floats, outputs_of(network / "model.onnx", held, False))
                if min(again.values(), default=999.0) < SAME:
                    raise ValueError("it draws random numbers: two runs of the float model differ")
                profile = row_of(network, "profile", Path(folder), None)
            except Exception as error:
                profile = {**parts_of(network.name), "way": "profile", "status": NOT_RUN}
                profile["sentence"] = str(error)[:300]
            file.write(json.dumps(profile | commit) + "\n")
            if profile["status"] != "ok":
                continue
            for way in missing:
                print(json.dumps([network.name, way]), flush=True)
                file.write(json.dumps(row_of(network, way, Path(folder), floats) | commit) + "\n")
                file.flush()


def parts_of(folder: str) -> dict[str, str]:
    """Return family, name and exporter of a network from the name of its folder."""
    family, _, rest = folder.partition(".")
    name, _, exporter = rest.rpartition(".")
    return {"family": family, "name": name, "exporter": exporter}


def key_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the folder of the network and the way of a row."""
    return f"{row['family']}.{row['name']}.{row['exporter']}", row["way"]


def rows_in(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last row of each network and way."""
    if not path.exists():
        return {}
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {key_of(row): row for row in found}


def watch(words: list[str], rows: Path) -> bool:
    """Run a process that works through networks; a crash or a row that takes too long becomes a row. Return
    whether it came to its end."""
    import threading

    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        begun, late = ["", ""], []

        def kill() -> None:
            late.append(True)
            process.kill()

        timer = threading.Timer(SECONDS, kill)
        timer.start()
        for line in process.stdout:
            timer.cancel()
            begun = json.loads(line)
            timer = threading.Timer(SECONDS, kill)
            timer.start()
        timer.cancel()
        code = process.wait()
        errors.seek(0)
        said = errors.read().strip()
    if code == 0:
        return True
    if not begun[0]:
        raise SystemExit(f"the process did not start: {said}")
    row = {**parts_of(begun[0]), "way": begun[1], "status": "time" if late else "crash"}
    row["sentence"] = f"more than {SECONDS} s" if late else f"exit {code}: {said[-300:]}"
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return False


def page(rows: Sequence[Mapping[str, Any]], networks: Path) -> str:
    """Return ARCHITECTURES.md."""
    first = __doc__ or ""
    said = first[first.index("DIR is a folder") : first.index("FILE gets")]
    lines = ["# Networks that nobody here wrote", "", "Written by architectures.py. " + said.strip(), ""]
    commits = Counter(row.get("commit", "unknown") for row in rows)
    told_of = " and ".join(f"{number} at commit {commit}" for commit, number in commits.most_common())
    lines += [f"Rows: {told_of}.", "", "## Networks", ""]
    lines += ["| family | types | dynamo | torchscript | not exported | not run, or random | not tried yet |"]
    lines += ["|---|---|---|---|---|---|---|"]
    profiles = [row for row in rows if row["way"] == "profile"]
    for family, title in FAMILIES.items():
        mine = [row for row in profiles if row["family"] == family]
        run = [row for row in mine if row["status"] != NOT_RUN]
        types = len({row["name"] for row in run})
        by = Counter(row["exporter"] for row in run)
        refused = len(list(networks.glob(f"{family}.*/refused.txt")))
        waiting = len(list(networks.glob(f"{family}.*/model.onnx"))) - len(mine)
        others = f"{by['dynamo']} | {by['torchscript']} | {refused} | {len(mine) - len(run)} | {waiting}"
        lines.append(f"| {title} | {types} | {others} |")
    lines += ["", "## What became of them", ""]
    shown = [status for status in STATUSES if any(row["status"] == status for row in rows)]
    lines += [
        "| way | " + " | ".join(STATUSES[status] for status in shown) + " | predicted slower than float |"
    ]
    lines += ["|---|" + "---|" * (len(shown) + 1)]
    for way in ("profile", *WAYS):
        mine = [row for row in rows if row["way"] == way]
        if mine:
            counts = Counter(row["status"] for row in mine)
            slower = sum(map(is_slower, mine))
            cells = [str(counts[status] or "") for status in shown]
            lines.append(f"| {way} | " + " | ".join(cells) + f" | {slower or ''} |")
    lines += [
        "",
        "Predicted slower are plans that cost 5 microseconds more than float by the target's own table.",
    ]
    lines += ["", *_bands(rows), "", "## Refused, and what went wrong", ""]
    told: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row["status"] not in ("ok", "above its band", "below its band", "below its band on new samples"):
            where = f"{row['family']}.{row['name']}.{row['exporter']} ({row['way']})"
            sentence = row.get("sentence", "").replace(f"{networks}/", "").replace("|", "\\|")
            told[(row["status"], sentence[:SHOWN])].append(where)
    lines += [
        f"* {status}, {len(where)}: {sentence}. {', '.join(where[:4])}"
        for (status, sentence), where in told.items()
    ]
    lines += [
        "",
        "## Below their bands",
        "",
        "| network | way | estimated | band | on profiled samples | measured |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for row in rows:
        for name, (estimated, low, high) in row.get("expected", {}).items():
            measured = row.get("measured", {}).get(name)
            if measured is not None and measured < low:
                known = row.get("measured on profiled", {}).get(name, "")
                at = f"{row['family']}.{row['name']}.{row['exporter']} | {row['way']}"
                lines.append(f"| {at} | {estimated} | {low} to {high} | {known} | {measured} |")
    return "\n".join(lines) + "\n"


def _bands(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    inside, below, above, known = 0, 0, 0, 0
    for row in rows:
        for name, (_, low, high) in row.get("expected", {}).items():
            measured = row.get("measured", {}).get(name)
            if measured is not None:
                inside += low <= measured <= high
                above += measured > high
                below += measured < low
                known += measured < low <= row.get("measured on profiled", {}).get(name, -999.0)
    whole = max(1, inside + below + above)
    return [
        f"Of {whole} outputs with a band {100 * inside / whole:.1f} % are in it, {100 * above / whole:.1f} % "
        f"above and {100 * below / whole:.1f} % below; {known} of these {below} are in it on samples of the "
        "profile: 32 samples do not show every value that eight others have."
    ]


def main() -> None:
    """Quantize what is asked for, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--only", default="")
    parser.add_argument("--subset", type=int, default=0)
    parser.add_argument("--again", default="")
    parser.add_argument("--write", action="store_true", help="write the page; nothing is quantized")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    found = given.networks.glob("*/model.onnx")
    networks = sorted(p.parent for p in found if given.only in p.parent.name and p.parent.name != "part")
    random.Random(0).shuffle(networks)
    networks = sorted(networks[: given.subset or None], key=lambda path: (path / "model.onnx").stat().st_size)
    if given.write:
        text = page(list(rows_in(given.rows).values()), given.networks)
        PAGE.write_text(text, encoding="utf-8")
        return
    ways, again = given.ways.split(","), set(filter(None, given.again.split(",")))
    if given.worker:
        os.environ["QPROF_STRICT"] = "1"  # what fails while a plan is improved is an internal error here
        known = rows_in(given.rows)
        done = {key for key, row in known.items()} | {
            (folder, way)
            for (folder, what), row in known.items()
            for way in ways
            if what == "profile" and row["status"] != "ok"
        }
        work_through(networks, ways, done, given.rows)
        return
    if again:
        kept = [row for row in rows_in(given.rows).values() if row["status"] not in again]
        given.rows.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, "--worker", *sys.argv[1:]]
    words = [w for i, w in enumerate(words) if w != "--again" and (i == 0 or words[i - 1] != "--again")]
    while not watch(words, given.rows):
        pass


if __name__ == "__main__":
    main()
