"""Every model that the installed onnx package ships, through every form: what passes, what is refused.

    python tests/benchmarks/run.py conformance node --work DIR --limit 100
    python tests/benchmarks/run.py conformance --work DIR --write

Subjects are kinds of models.
A model counts when onnxruntime runs it as it is and one of its outputs is float. It is prepared,
instrumented, profiled on its own data, planned with integers wherever the table has a rule (whether or not
that pays, and whether or not the target has an integer kernel), written in each form, loaded and run,
optimised and not; in form qdq with activations of 16 bits too, most of which are float between conversions.
`--only NAME` runs one model of a kind and shows its errors.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import traceback
import warnings
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from frame import HERE, Row, Rows, Stage, table
from onnx import numpy_helper
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.targets.forms import FORMS
from record import session
from workbench import RUNTIME_ERRORS

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
WIDE = "qdq, 16 bits"
WRITTEN = (*FORMS, WIDE)
"""What is written of each model: every form, and form qdq with activations of 16 bits."""
SECONDS = 300  # that one model may take
WORKER = "import sys; from stages.conformance import examine_all; examine_all(sys.argv[1:])"
Record = dict[str, Any]
Feed = Mapping[str, Any]


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, help="so many models of each kind")
    parser.add_argument("--only", help="one model, here and now, with tracebacks")


def rows(kind: str, given: Namespace) -> Iterator[Row]:
    """Yield what became of each model of a kind."""
    warnings.simplefilter("ignore")
    folders = _folders(kind, given.work, given.limit)
    if given.only:
        (folder,) = (f for f in folders if f.name == given.only)
        yield examined(folder, show=True)
        return
    _run_all(folders)
    yield from (json.loads((folder / "record.json").read_text()) for folder in folders)


def _run_all(folders: Sequence[Path], at_once: int = 2, batch: int = 20) -> None:
    """Examine the models in processes of their own, so that one that dies takes no other with it."""
    waiting = list(folders)
    for folder in waiting:
        (folder / "record.json").unlink(missing_ok=True)
    running: list[tuple[subprocess.Popen[bytes], list[Path]]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            taken, waiting = waiting[:batch], waiting[batch:]
            command = [sys.executable, "-c", WORKER, *map(str, taken)]
            running.append((subprocess.Popen(command, cwd=HERE, stderr=subprocess.DEVNULL), taken))
        process, taken = running.pop(0)
        try:
            process.wait(SECONDS * 4)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        left = [folder for folder in taken if not (folder / "record.json").exists()]
        if left:
            how = f"the process ended with {process.returncode}"
            _keep(left[0], {"name": left[0].name, "kind": left[0].parent.name, "crash": how, "forms": {}})
            waiting = [*left[1:], *waiting]


def examine_all(folders: Sequence[str]) -> None:
    """Examine models and keep what became of each; the work of a process."""
    warnings.simplefilter("ignore")
    for folder in map(Path, folders):
        _keep(folder, examined(folder))


def _keep(folder: Path, record: Record) -> None:
    (folder / "record.json").write_text(json.dumps(record))


def _folders(kind: str, work: Path, limit: int | None) -> list[Path]:
    """Return a folder for each model, with model.onnx and one set of inputs."""
    folders = []
    for name, model, inputs in sorted(_cases(kind), key=lambda case: case[0])[:limit]:
        folder = work / kind / name
        data = folder / "data" / "test_data_set_0"
        if not (folder / "model.onnx").exists():
            data.mkdir(parents=True, exist_ok=True)
            for index, array in enumerate(inputs):
                if array is not None:
                    (data / f"input_{index}.pb").write_bytes(_tensor(array).SerializeToString())
            onnx.save(model, folder / "model.onnx")
        folders.append(folder)
    return folders


def _tensor(array: Any) -> Any:
    if isinstance(array, onnx.TensorProto | onnx.SequenceProto | onnx.OptionalProto | onnx.SparseTensorProto):
        return array
    if isinstance(array, list):
        return numpy_helper.from_list([np.asarray(a) for a in array])
    if isinstance(array, dict):
        return numpy_helper.from_dict(array)
    return numpy_helper.from_array(np.asarray(array))


def _cases(kind: str) -> Iterator[tuple[str, onnx.ModelProto, list[Any]]]:
    from onnx.backend.test.loader import DATA_DIR, load_model_tests

    if kind == "light":
        for path in sorted((Path(DATA_DIR) / "light").glob("*.onnx")):
            model = onnx.load(path)
            yield path.stem, model, _seeded(model)
        return
    for case in load_model_tests(kind=kind):
        if case.model is not None:
            yield case.name, case.model, list(case.data_sets[0][0]) if case.data_sets else []
        elif case.model_dir is not None:
            folder = Path(case.model_dir)
            sets = sorted(folder.glob("test_data_set_0/input_*.pb"), key=lambda p: int(p.stem[6:]))
            yield case.name, onnx.load(folder / "model.onnx"), [onnx.load_tensor(p) for p in sets]


def _seeded(model: onnx.ModelProto) -> list[Any]:
    """Return inputs for a model that comes without; the light models' weights are constants by shape."""
    rng = np.random.default_rng(0)
    known = {t.name for t in model.graph.initializer}
    return [
        rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
        if value.name not in known
    ]


def examined(folder: Path, show: bool = False) -> Record:
    """Return what became of one model."""
    from qprof_onnx.profiles.base.errors import QprofError

    record: Record = {"name": folder.name, "kind": folder.parent.name, "forms": {}}
    try:
        feed, outputs = _float_run(folder)
    except RUNTIME_ERRORS as error:
        return {**record, "excluded": f"onnxruntime does not run it: {str(error)[:150]}"}
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        return {**record, "excluded": f"its inputs are no plain tensors: {str(error)[:100]}"}
    if not any(isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in outputs):
        return {**record, "excluded": "no output is float"}
    stage = "prepare"
    try:
        for stage in ("instrument", "plan"):
            record |= _instrumented(folder, feed) if stage == "instrument" else _planned(folder)
        for stage in WRITTEN:
            record["forms"][stage] = _form(folder, stage, feed, outputs, show)
    except QprofError as error:
        if show:
            traceback.print_exc()
        return {**record, "refused": f"{stage}: {_without(folder, error)}"}
    except Exception as error:  # a crash is what this script looks for
        if show:
            traceback.print_exc()
        return {**record, "crash": f"{stage}: {_where(error)}"}
    return record


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "qprof_onnx" in f.filename or "/quantizer/" in f.filename] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
    return f"{type(error).__name__} in {place}: {str(error)[:200]}"


def _float_run(folder: Path) -> tuple[Feed, list[Any]]:
    opened = session(folder / "model.onnx", 1)
    feed = {}
    for index, spec in enumerate(opened.get_inputs()):
        path = folder / "data" / "test_data_set_0" / f"input_{index}.pb"
        if path.exists():
            feed[spec.name] = numpy_helper.to_array(onnx.load_tensor(path))
    return feed, opened.run(None, feed)


def _instrumented(folder: Path, feed: Feed) -> Record:
    from qprof_onnx.quantizer.api.profiling import instrument
    from qprof_onnx.quantizer.model.files import load_model
    from qprof_onnx.quantizer.model.saving import save_model
    from qprof_onnx.quantizer.prepare.prepare import prepare

    save_model(prepare(load_model(folder / "model.onnx")).model, folder / "prepared.onnx")
    instrument(folder / "model.onnx", folder / "instrumented.onnx")
    plain = session(folder / "prepared.onnx", 1, optimised=False)
    watched = session(folder / "instrumented.onnx", 1, optimised=False)
    names = [output.name for output in plain.get_outputs()]
    pairs = zip(plain.run(names, feed), watched.run(names, feed), strict=True)
    return {"identical": all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)}


def _planned(folder: Path) -> Record:
    from qprof_onnx.quantizer.api.profiling import profile_model
    from qprof_onnx.quantizer.api.results import summarize
    from qprof_onnx.quantizer.plan.plan import Kind
    from qprof_onnx.quantizer.plan.store import save_plan
    from qprof_onnx.quantizer.planning.facts import planning_facts
    from qprof_onnx.quantizer.planning.noise_budget import make_plan
    from qprof_onnx.quantizer.prepare.prepare import open_prepared

    path = folder / "model.onnx"
    profile = profile_model(path, folder / "data", run=RunSettings(non_finite="skip", threads=1))
    prepared = open_prepared(path)
    plan = make_plan(planning_facts(prepared, profile, _everything()), start_everywhere=True)
    for form in FORMS:
        own = replace(plan, config=replace(plan.config, form=form))
        save_plan(own, folder / f"{form}.yaml")
    wide = planning_facts(prepared, profile, _everything(activation_type="uint16"))
    save_plan(make_plan(wide, start_everywhere=True), folder / f"{WIDE}.yaml")
    summary = summarize(plan)
    reasons = Counter(_general(node.reason) for node in plan.nodes.values() if node.kind is Kind.FLOAT)
    return {"counts": dict(summary.counts), "reasons": dict(reasons)}


def _everything(**settings: str) -> Any:
    """Return a recipe with the default target, but one that takes every operator of the table."""
    from qprof_onnx.quantizer.operators.table import RULES
    from qprof_onnx.quantizer.targets.loading import load_recipe
    from qprof_onnx.quantizer.targets.target import QUANTIZED

    recipe = load_recipe(None, {"cost_model": "off", **settings})
    operators = {op_type: (QUANTIZED,) for _, op_type in RULES}
    operators |= dict(recipe.target.operators)
    return replace(recipe, target=replace(recipe.target, operators=operators))


def _without(folder: Path, error: BaseException) -> str:
    return str(error).replace(f"{folder}/", "")


def _general(text: str) -> str:
    """Return a sentence without the names of tensors and nodes, so that equal reasons can be counted."""
    parts = text.split("'")
    return "'...'".join(parts[::2]) if len(parts) > 2 else text


def _form(folder: Path, form: str, feed: Feed, outputs: Sequence[Any], show: bool) -> Record:
    from qprof_onnx.profiles.base.errors import QprofError
    from qprof_onnx.quantizer.api.from_profile import write_quantized

    path = folder / f"{form}.onnx"
    try:
        write_quantized(folder / "model.onnx", None, path, plan=folder / f"{form}.yaml")
        found = session(path, 1).run(None, feed)
        as_written = session(path, 1, optimised=False).run(None, feed)
    except QprofError as error:
        return {"refused": _without(folder, error)}
    except RUNTIME_ERRORS as error:
        return {"invalid": str(error)[:300]}
    except Exception as error:  # a crash is what this script looks for
        if show:
            traceback.print_exc()
        return {"crash": _where(error)}
    for wanted, got in zip(outputs, found, strict=True):
        if isinstance(wanted, np.ndarray) and (wanted.shape, wanted.dtype) != (got.shape, got.dtype):
            return {"invalid": f"an output is {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"}
    worst, unoptimised = _worst(outputs, found), _worst(outputs, as_written)
    spread = unoptimised - worst if np.isfinite(worst) and np.isfinite(unoptimised) else None
    return {
        "sqnr": worst if np.isfinite(worst) else None,
        "exact": worst == float("inf"),
        "spread": spread,
    }


def _worst(outputs: Sequence[Any], found: Sequence[Any]) -> float:
    """Return the least SQNR of the float outputs, in dB."""
    pairs = zip(outputs, found, strict=True)
    return min(
        (
            _sqnr(wanted, got)
            for wanted, got in pairs
            if isinstance(wanted, np.ndarray) and wanted.dtype.kind == "f"
        ),
        default=float("inf"),
    )


def _sqnr(wanted: np.ndarray, got: np.ndarray) -> float:
    real = np.isfinite(wanted)
    a, b = wanted[real].astype(np.float64), got[real].astype(np.float64)
    noise = float(np.sum((a - b) ** 2))
    if noise == 0.0:
        return float("inf")
    signal = float(np.sum(a**2))
    return 10.0 * float(np.log10(signal / noise)) if signal > 0.0 else float("-inf")


def page(rows: Rows) -> str:
    """Return all tables."""
    records, forms = [row for some in rows.values() for row in some], WRITTEN
    counted = [record for record in records if "excluded" not in record]
    excluded = Counter(record["excluded"].split(":")[0] for record in records if "excluded" in record)
    others = "; ".join(f"{reason} ({count})" for reason, count in excluded.most_common())
    parts = [
        f"{len(records)} models of onnx {version('onnx')}; {len(counted)} count. The others: {others}.",
        _passing(counted, forms),
        _quality(counted, forms),
        "## Refused, invalid or crashed\n\n" + _troubles(counted, forms),
        "## Why nodes stay float\n\n" + _reasons(counted),
        "## Least signal over noise\n\n" + _noisiest(counted, forms),
        "## Optimised and not\n\n" + _spread(counted, forms),
    ]
    return "\n\n".join(parts)


def _passes(record: Record, form: str) -> bool:
    return "sqnr" in record["forms"].get(form, {})


def _passing(records: Sequence[Record], forms: Sequence[str]) -> str:
    rows = []
    kinds = dict.fromkeys(record["kind"] for record in records)
    for kind in [*kinds, "all"]:
        those = [record for record in records if kind in (record["kind"], "all")]
        quantized = sum(any(n for k, n in r.get("counts", {}).items() if k != "float") for r in those)
        identical = sum(record.get("identical", False) for record in those)
        done = [sum(_passes(record, form) for record in those) for form in forms]
        rows.append([kind, len(those), identical, quantized, *done])
    head = ["kind", "models", "instrumented: same bits", "with a quantized node", *forms]
    return "## Loaded and run, by form\n\n" + table(head, rows)


def _quality(records: Sequence[Record], forms: Sequence[str]) -> str:
    rows = []
    for form in forms:
        found = [record["forms"][form] for record in records if _passes(record, form)]
        noisy = sorted(entry["sqnr"] for entry in found if entry["sqnr"] is not None)
        low = [sum(value < limit for value in noisy) for limit in (10, 20, 30)]
        middle = f"{statistics.median(noisy):.1f}" if noisy else "-"
        rows.append([form, len(found), len(found) - len(noisy), middle, *low])
    head = ["form", "run", "equal to float", "median SQNR dB", "below 10", "below 20", "below 30"]
    return "## Signal over noise\n\n" + table(head, rows)


def _troubles(records: Sequence[Record], forms: Sequence[str]) -> str:
    rows = []
    for record in records:
        for word in ("refused", "crash"):
            if word in record:
                rows.append([record["name"], "all", word, _short(record[word])])
        for form in forms:
            entry = record["forms"].get(form, {})
            for word in ("refused", "invalid", "crash"):
                if word in entry:
                    rows.append([record["name"], form, word, _short(entry[word])])
    return table(["model", "form", "what", "why"], rows) if rows else "None."


def _short(text: str) -> str:
    return " ".join(text.split())[:240].replace("|", "/")


def _reasons(records: Sequence[Record]) -> str:
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.get("reasons", {}))
    return table(
        ["nodes", "reason"], [[count, reason.replace("|", "/")] for reason, count in total.most_common()]
    )


def _noisiest(records: Sequence[Record], forms: Sequence[str], count: int = 30) -> str:
    rows = []
    for record in records:
        values = [record["forms"].get(form, {}).get("sqnr") for form in forms]
        known = [value for value in values if value is not None]
        if known:
            cells = ["exact" if v is None else f"{v:.1f}" for v in values]
            rows.append((min(known), [record["name"], *cells]))
    rows.sort(key=lambda row: row[0])
    return table(["model", *forms], [cells for _, cells in rows[:count]])


def _spread(records: Sequence[Record], forms: Sequence[str], least: float = 2.0) -> str:
    """Return the models that onnxruntime's optimisations make worse than they are written."""
    rows = []
    for record in records:
        values = [record["forms"].get(form, {}).get("spread") for form in forms]
        if any(value is not None and value > least for value in values):
            rows.append([record["name"], *("-" if value is None else f"{value:.1f}" for value in values)])
    said = f"Models that lose more than {least:g} dB to onnxruntime's optimisations, and how many: "
    return said + (f"{len(rows)}.\n\n" + table(["model", *forms], rows) if rows else "none.")


STAGE = Stage(rows, {"CONFORMANCE.md": page}, KINDS, options)
