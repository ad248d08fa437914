"""Prints tables of the code into the pages: options, metrics, gates, targets, schemas, examples.

A page has `<!-- printed NAME ARGUMENTS -->` and `<!-- end -->`, and between them the text of a function of
`PRINTERS`. `python docs/printed.py` writes all pages anew; `tests/test_docs.py` fails while one is old. It
also makes the page of Python, which is not kept. With `tuned` it prints the table of tuned constants.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import os
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import click
import qprof_onnx
from qprof_onnx import target_names
from qprof_onnx.cli import schemas
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.cli.options import SetOption
from qprof_onnx.profiles.base.findings import table as table_of_findings
from qprof_onnx.quantizer.api.options import PRECISIONS
from qprof_onnx.quantizer.evaluation.gates import UNITS
from qprof_onnx.quantizer.evaluation.metrics.table import KINDS
from qprof_onnx.quantizer.evaluation.options import Gate
from qprof_onnx.quantizer.evaluation.output_shift import (
    MOST_COSINE_NOISE,
    MOST_MOVED,
    NOISE_SLACK,
    worst_error,
)
from qprof_onnx.quantizer.noise.output_limits import LIMITS, PLACES_TOLERANCE, TOLERANCE
from qprof_onnx.quantizer.plan.reasons import ReasonCode, template
from qprof_onnx.quantizer.plugins.drift.limits import DriftLimits
from qprof_onnx.quantizer.plugins.exchange.formats import FORMATS
from qprof_onnx.quantizer.prepare.unfusing import TAKEN_APART
from qprof_onnx.quantizer.targets.config import QuantConfig, settings
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.operator_reference import reference_of, taken_apart_text

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"<!-- printed (.+?) -->\n(.*?)<!-- end -->", re.DOTALL)

LINE = 110
"""Characters of the longest line of a signature."""
WEIGHT_ONLY = "weight-only-"
"""Begin of the words of `--as` that quantize only weights."""
NARROW = 1.2
"""Factor below which a range says that a mechanism hangs on its constant."""

EXTRAS = {
    "images": "folders of pictures: JPEG, PNG, WebP, BMP, TIFF",
    "text": "lines of text with a `tokenizer.json`",
    "audio": "sound files beyond plain WAV",
    "tables": "Parquet, and large CSV",
    "remote": "data under `s3://`, `gs://`, `az://` and other URLs",
    "metrics": "metrics of `qprof evaluate --metric` that a library computes",
    "cluster": "`qprof dump-profile --scheduler`: workers of a Dask cluster",
    "examples": "the script that trained the digits example",
    "test": "the tests of the core",
    "test-all": "all tests: browsers, OpenVINO, object stores, the site",
    "benchmarks": "the benchmarks on real models",
    "docs": "the site of these pages",
    "notebooks": "the notebooks",
    "openvino": "models judged in OpenVINO too: `qprof evaluate --runtime openvino`",
}
"""What each extra of `pyproject.toml` is for."""

IMPORTED = {
    "onnxruntime's quantizer (QDQ, QLinear operators, dynamic, MatMulNBits)": (
        "1.31.1",
        "nothing if `quant_pre_process` prepared the model; else roundings between a product and "
        "the scales that are folded into it",
    ),
    "NNCF's ONNX backend": ("3.4.0", "roundings between a product and its BatchNormalization"),
    "AMD Quark (A8W8, S8S8, XINT8)": (
        "0.13",
        "nodes that Quark inserted, such as the Mul of XINT8; its own operators (ExtendedQuantizeLinear, "
        "MX and BFP blocks)",
    ),
    "AIMET (`to_onnx_qdq`)": ("2.42.0", "we found no loss"),
    "NVIDIA Model Optimizer (int8)": ("0.47.0", "we found no loss"),
}
"""Other tools whose quantized models we imported: the tool's version, and the losses."""


PAGES = sorted((ROOT / "docs").rglob("*.md"))


def printed(page: str) -> str:
    """Return a page with all its printed blocks made anew; raises `KeyError` for the name of no function."""

    def block(found: re.Match[str]) -> str:
        name, *arguments = found[1].split()
        return f"<!-- printed {found[1]} -->\n\n{PRINTERS[name](*arguments).strip()}\n\n<!-- end -->"

    return BLOCK.sub(block, page)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [" | ".join(map(str, row)) for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def file(name: str) -> str:
    """Return a file of the checkout as a block of code; `py` marks one that the tests of pages do not run."""
    language = {".py": "py", ".yml": "yml", ".yaml": "yml"}[Path(name).suffix]
    return f"```{language}\n{(ROOT / name).read_text(encoding='utf-8').strip()}\n```"


def notebooks() -> str:
    """Return the six notebooks as they were run last, each cell with what it printed."""
    parts = []
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            source = "".join(cell["source"])
            if number == 0:
                parts.append(f"## {source.partition(chr(10))[0].lstrip('# ')}")
                source = source.partition("\n")[2]
            if cell["cell_type"] == "markdown":
                parts.append(re.sub("^#+", "###", source, flags=re.MULTILINE).strip())
                continue
            parts.append(f"```py\n{source}\n```")
            if told := "\n".join(filter(None, (_told(output).rstrip() for output in cell["outputs"]))):
                parts.append(f"```text\n{told[:4000]}\n```")
    return "\n\n".join(filter(None, parts))


def _told(output: dict[str, Any]) -> str:
    found = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return found if isinstance(found, str) else "".join(found)


def extras() -> str:
    """Return the table of extras: what each is for, the first six packages that it brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = []
    for name, brings in project["optional-dependencies"].items():
        packages = [f"`{re.split('[>=<;]', one)[0].strip()}`" for one in brings]
        rows.append((f"`{name}`", EXTRAS[name], ", ".join([*packages[:6], *["..."] * (len(packages) > 6)])))
    return table(("extra", "for", "brings"), rows)


def percent(share: float) -> str:
    """Return a share in percent, with two digits at least: "0.42 %", "4.7 %", "31 %"."""
    return f"{100.0 * share:.{2 if share < 0.01 else 1 if share < 0.1 else 0}f} %"


def limits() -> str:
    """Return the table of how far each kind of output may be off."""
    planned = {kind: f"{decibels:.0f} dB" for kind, (decibels, _) in LIMITS.items()}
    signal = LIMITS["signal"][0] - 10.0 * math.log10(NOISE_SLACK)

    def columns(error: float) -> str:
        return f"{percent(error)}, in the worst column {percent(worst_error(error))}"

    rows = (
        (
            "probabilities, scores, logits of classes",
            "probability error: the sum of the absolute errors of all probabilities, divided by their sum "
            "(0 to 200 %)",
            percent(MOST_MOVED),
            planned["decision"],
        ),
        ("index of the largest score", "answers that change", percent(MOST_MOVED), planned["decision"]),
        (
            "embedding",
            "cosine error: the error of the cosines between rows, divided by their variation",
            percent(MOST_COSINE_NOISE),
            planned["embedding"],
        ),
        (
            "values: numbers of a regression",
            "the typical error of a column, divided by its variation, or relative to each value after an "
            "exponential, a power of a constant, a quotient",
            columns(TOLERANCE),
            planned["values"],
        ),
        (
            "values at each place of a map or position of a sequence; vectors of many similar columns",
            "the same",
            columns(PLACES_TOLERANCE),
            planned["values"],
        ),
        (
            "signal: pictures, sound",
            "noise, divided by the signal's variation",
            f"{signal:.0f} dB",
            planned["signal"],
        ),
        ("drawn at random, or with a variable length", "nothing", "no grade", planned["values"]),
    )
    return table(("output", "measure", "good up to", "planned with"), rows)


EVALUATE = "evaluate, report"
BY_METRIC = "or the unit of the metric; for your own function, the unit of its result"
GATES = {
    "min_sqnr": (
        f"{EVALUATE}, quantize `--set min_sqnr`",
        "the worst float output, of all samples together",
        "",
    ),
    "max_drop": (
        f"{EVALUATE}, quantize, tune",
        "the upper end of the 95 % interval of the score's drop",
        f"percentage points, {BY_METRIC}",
    ),
    "min_score": (
        f"{EVALUATE}, quantize `--set min_score`",
        "the score, if the labels fit",
        f"%, {BY_METRIC}",
    ),
    "min_speedup": (f"{EVALUATE}, quantize `--set min_speedup`", "the lower quartile of the rounds", ""),
    "max_size": (f"{EVALUATE}, quantize", "the file", ""),
    "max_non_finite": ("diff, dump-profile", "the worst tensor", ""),
}
"""Commands that have a gate, the figure that is held against the limit, and the units that a metric may say;
those of diff that are not here hold the worst tensor."""


def gates() -> str:
    """Return the table of gates."""
    rows = []
    for name in (field.name for record in (Gate, DriftLimits) for field in fields(record)):
        unit = UNITS.get(name, "")
        commands, figure, told = GATES.get(name, ("diff", "the worst tensor", ""))
        end = "at least" if name.startswith("min_") else "at most"
        rows.append((f"`--{name.replace('_', '-')}`", commands, f"{end}: {figure}", told or unit))
    return table(("gate", "commands", "limit", "unit"), rows)


def metrics() -> str:
    """Return the table of built-in metrics."""
    rows = []
    for kind in KINDS:
        better = "" if kind.higher_is_better else ", lower is better"
        options = [
            f"`{name}`" if value is None else f"`{name}={value}`" for name, value in kind.options.items()
        ]
        title = f"{kind.title}{better}"
        rows.append((f"`{kind.name}`", title, kind.truth, kind.without_truth or "-", ", ".join(options)))
    return table(("`--metric`", "score", "`--labels`", "without labels", "options"), rows)


def commands() -> str:
    """Return the table of commands, and the whole help of each."""
    rows = [(f"[`{name}`](#{name})", about) for name, about in COMMANDS.items()]
    parts = [table(("command", ""), rows)]
    for name, about in COMMANDS.items():
        command = main.get_command(click.Context(main), name)
        assert command is not None
        context = click.Context(
            command,
            info_name=f"qprof {name}",
            terminal_width=92,
            max_content_width=92,
            **main.context_settings,
        )
        told: str = getattr(command, "full_help", command.get_help)(context)
        parts += [f"## {name}", about, f"```text\n{told}\n```"]
    return "\n\n".join(parts)


def options() -> str:
    """Return the tables of options of all commands, and of settings without an option."""
    of: dict[str, tuple[str, list[str]]] = {}
    rare: dict[str, str] = {}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, SetOption):
                rare |= {one: field.description for one, field in option.rare.items()}
            if isinstance(option, click.Option):
                words = (option.help or "").partition("  [")[0]
                of.setdefault(max(option.opts, key=len), (words, []))[1].append(f"`{name}`")
    rows = [
        (f"`{name}`", words, ", ".join(found) if len(found) < 8 else f"{len(found)} commands")
        for name, (words, found) in of.items()
    ]
    without = {name: one.description for name, one in settings().items() if not one.flag}
    return "\n\n".join(
        (
            "## Options",
            table(("option", "meaning", "commands"), rows),
            "## Given by --set",
            table(
                ("KEY of --set", "meaning"),
                ((f"`{name}`", text) for name, text in {**without, **dict(sorted(rare.items()))}.items()),
            ),
        )
    )


def _joined(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "-"


def targets() -> str:
    """Return the table of targets, and what each executes."""
    rows, parts = [], []
    for name in target_names():
        recipe = load_recipe(name)
        target, config, known = recipe.target, recipe.config, recipe.target.verified
        default = " **(default)**" if name == QuantConfig.target else ""
        weights = f"{config.weight_type}, {config.granularity}"
        rows.append(
            (
                f"[`{name}`](#{name}){default}",
                target.description,
                known.title,
                config.activation_type,
                weights,
                config.schema,
            )
        )
        facts: list[tuple[str, str]] = [
            ("activations, weights", f"{_joined(target.activation_types)}; {_joined(target.weight_types)}"),
            ("forms", _joined(target.forms)),
            ("zero points", target.zero_points),
            ("bias", target.bias),
            ("table of measured times", "yes" if target.costs else "none: plans follow fixed rules"),
        ]
        by: dict[str, list[str]] = defaultdict(list)
        for operator, kernels in target.operators.items():
            by[" or ".join(kernels)].append(operator)
        facts += [(f"integer kernel, returns {way}", ", ".join(sorted(found))) for way, found in by.items()]
        tables: dict[str, list[str]] = defaultdict(list)
        for operator, how in target.lookup_tables.items():
            tables[how].append("all other unary functions" if operator == "*" else operator)
        facts += [(f"look-up table, as {how}", ", ".join(sorted(found))) for how, found in tables.items()]
        usual = [operator for operator in target.dynamic if operator not in target.slower_dynamic]
        facts.append(("`--as int8-dynamic`", ", ".join(usual) or "none"))
        if target.slower_dynamic:
            slower = ", ".join(f"{one} ({times:g})" for one, times in target.slower_dynamic.items())
            facts.append(("the same, with `--set cost_model=off`: times as long as float", slower))
        by_types: dict[str, list[str]] = defaultdict(list)
        for operator, types in target.weight_only.items():
            by_types[", ".join(types)].append(operator)
        words = {
            word.removeprefix(WEIGHT_ONLY): str(settings["weight_type"])
            for word, settings in PRECISIONS.items()
            if word.startswith(WEIGHT_ONLY)
        }
        for types_told, found in by_types.items():
            first, *more = (word for word, name in words.items() if name in types_told.split(", "))
            told = f"`--as {WEIGHT_ONLY}{first}`" + "".join(f", `-{word}`" for word in more)
            facts.append((f"{told}: {types_told}", ", ".join(found)))
        if not any("int8" in types for types in target.weight_only.values()):
            facts.append((f"`--as {WEIGHT_ONLY}8`", "none"))
        if target.float_types:
            types = ", ".join(target.float_types)
            facts.append((f"`--as float8`, {types}", ", ".join(target.float_products)))
        parts += [
            f"## {name}",
            f"{target.description}.",
            f"**{known.title}**: {known.runtime}, {known.date}.",
            table(("", ""), facts),
        ]
    head = ("target", "runtime", "evidence", "activations", "weights", "schema")
    return "\n\n".join((table(head, rows), *parts))


def documents() -> str:
    """Return the table of JSON Schemas, and the fields of each document, without those of records inside."""
    rows = [(f"[`{name}`](#{name})", document.about) for name, document in schemas.DOCUMENTS.items()]
    parts = [table(("name", "of"), rows)]
    for name, document in schemas.DOCUMENTS.items():
        schema = schemas.schema_of(name)
        parts += [f"## {name}", f"{document.about[0].upper()}{document.about[1:]}."]
        for choice in schema.get("anyOf", [schema]):
            record = schema["$defs"][choice["$ref"].rpartition("/")[2]]
            fields = []
            for field, about in record.get("properties", {}).items():
                default = f"`{about['default']}`" if about.get("default") not in (None, "", [], {}) else ""
                cells = (_kind(about), default, about.get("description", ""))
                fields.append((f"`{field}`", *map(_cell, cells)))
            parts.append(table(("field", "type", "default", ""), fields))
    return "\n\n".join(parts)


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    choices = value.get("anyOf")
    if isinstance(choices, list):
        return " or ".join(dict.fromkeys(_kind(one) for one in choices))
    words = value.get("enum")
    if isinstance(words, list):
        return ", ".join(f"`{one}`" for one in words)
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        items = value.get("items")
        return f"list of {_kind(items)}" if isinstance(items, dict) and items else "list"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"mapping to {_kind(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return str(value.get("type", "any"))


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def findings() -> str:
    """Return the tables of severities and of the codes of findings."""
    entries = table_of_findings()
    parts = [
        table(("severity", "meaning"), [(f"`{one}`", entry["meaning"]) for one, entry in entries.items()])
    ]
    for severity, entry in entries.items():
        rows = [(f"`{code}`", meaning) for code, meaning in entry["codes"].items()]
        parts += [f"## {severity.capitalize()}s", table(("code", "meaning"), rows)]
    return "\n\n".join(parts)


def reasons() -> str:
    """Return the table of the reasons of float nodes."""
    rows = [(f"`{code}`", template(code)) for code in ReasonCode if code is not ReasonCode.UNKNOWN]
    return table(("reason", "sentence"), rows)


def exchange() -> str:
    """Return the table of file formats, models of other tools and runtimes: in, out, evidence, loss."""
    rows: list[Sequence[object]] = [("**Files**", "", "", "", "")]
    for name, entry in FORMATS.items():
        made = {"ranges": "profile", "parameters": "plan"}[entry.holds]
        into, out = made if entry.is_read else "-", made
        how, _, version = entry.evidence.partition(": ")
        reading = entry.lost_reading
        if reading and entry.holds == "ranges":
            reading = f"the file contains {reading}"
        lost = [f"*{way}*: {text}" for way, text in (("in", reading), ("out", entry.lost_writing)) if text]
        rows.append((f"`{name}`: {entry.title}", into, out, f"**{how}**: {version}", "<br>".join(lost)))
    rows.append(("**Quantized models of other tools**", "", "", "", ""))
    for tool, (version, reading) in IMPORTED.items():
        rows.append((tool, "plan", "model, form `qdq`", f"**run**: {version}", f"*in*: {reading}"))
    rows.append(("**Runtimes**", "", "", "", ""))
    for name in target_names():
        target = load_recipe(name).target
        known, zero = (
            target.verified,
            "zero point 0 only" if target.zero_points == "zero" else "any zero point",
        )
        types = ", ".join(dict.fromkeys((*target.activation_types, *target.weight_types)))
        rows.append(
            (
                f"[`{name}`](../reference/targets.md#{name})",
                "plan of any of these",
                f"model, forms {_joined(target.forms)}",
                f"**{known.title}**: {known.runtime}, {known.date}",
                f"nodes without a kernel stay float; types {types}; {zero}",
            )
        )
    return table(("format or runtime", "in", "out", "evidence, version", "contents and losses"), rows)


def names() -> str:
    """Return the table of public names of Python: the first sentence of each docstring."""
    rows = []
    for name in qprof_onnx.__all__:
        text = getattr(qprof_onnx, name).__doc__ if name != "__version__" else None
        if text:
            rows.append((f"[`{name}`](#{_anchor(name)})", _cell(text.split("\n\n")[0])))
    return table(("name", ""), rows)


def _anchor(name: str) -> str:
    return f"class-{name.lower()}" if inspect.isclass(getattr(qprof_onnx, name)) else name


def api(*names: str) -> str:
    """Return signature and docstring of public names of Python, with the public methods of classes."""
    parts = []
    for name in names:
        thing = getattr(qprof_onnx, name)
        if not inspect.isclass(thing):
            parts += [f"### {name}()", _signature(name, thing), _docstring(thing)]
            continue
        parts.append(f"### class {name}")
        if not issubclass(thing, Exception):
            parts.append(_signature(name, thing))
        parts.append(_docstring(thing))
        for method, member in vars(thing).items():
            called = getattr(member, "__func__", getattr(member, "fget", member))
            if method.startswith("_") or not inspect.isfunction(called) or not called.__doc__:
                continue
            of = f"{name}.{method}"
            shown = f"`{of}`" if isinstance(member, property) else _signature(of, called)
            parts += [shown, _docstring(called)]
    return "\n\n".join(parts)


def _signature(name: str, called: Callable[..., object]) -> str:
    """Return a call as it is written, a parameter a line where it is long."""
    signature = inspect.signature(called)
    parameters = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    words, only_by_name = [], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not only_by_name:
            words.append("*")
        only_by_name = only_by_name or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        words.append(f"{stars}{one.name}: {_type(one.annotation)}{default}")
    returns = "" if inspect.isclass(called) else f" -> {_type(signature.return_annotation)}"
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) > LINE:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"
    return f"```py\n{line}\n```"


def _default(value: object) -> str:
    if inspect.isfunction(value):
        return value.__name__
    if is_dataclass(value) and not isinstance(value, type):
        given = [field.name for field in fields(value) if getattr(value, field.name) != field.default]
        return repr(value) if given else f"{type(value).__name__}()"
    return "..." if repr(value).startswith("<") else repr(value)


def _type(annotation: object) -> str:
    """Return a type without the facts that `Annotated` keeps beside it."""
    tree = ast.parse(str(annotation), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            bare = node.slice.elts[0]
            return ast.unparse(tree).replace(ast.unparse(node), ast.unparse(bare))
    return ast.unparse(tree)


SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")


def _docstring(thing: object) -> str:
    """Return a docstring in Markdown: the entries of its sections are items of a list."""
    parts = []
    for part in (inspect.getdoc(thing) or "").split("\n\n"):
        head, _, body = part.partition("\n")
        if head.rstrip(":") not in SECTIONS:
            parts.append(part)
            continue
        entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=\S)", inspect.cleandoc(body))]
        if head.startswith(("Returns", "Yields")):
            parts.append(f"{head[:-1]}: {' '.join(entries)}")
            continue
        named = (entry.partition(": ") for entry in entries)
        items = "\n".join(f"* `{name}`: {text}" for name, _, text in named)
        parts.append(f"{head}\n\n{items}")
    return "\n\n".join(parts)


def tuned() -> str:
    """Return the table of tuned constants, from the calls of `tuned` in the source."""
    folders = (ROOT / "quantizer", ROOT / "profiles")
    places = ((folder, path) for folder in folders for path in sorted(folder.rglob("*.py")))
    rows = [row for folder, path in places for row in _constants(path, folder)]
    return table(("constant", "value", "meaning", "figure that chose it", "chosen on", "holds"), rows)


def _constants(path: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for line, behind in zip(body, [*body[1:], None], strict=True):
        call = line.value if isinstance(line, ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "tuned":
            continue
        assert isinstance(line, ast.Assign)
        (name,) = (target.id for target in line.targets if isinstance(target, ast.Name))
        said = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        meaning = ""
        if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            meaning = " ".join(str(behind.value.value).split("\n\n")[0].split())
        place = ".".join(path.relative_to(folder).with_suffix("").parts)
        value = ast.unparse(call.args[0])
        holds = _holds(eval(value), said.get("holds"))  # noqa: S307 (an expression of numbers in our source)
        yield f"`{place}.{name}`", value, meaning, said["figure"], said["chosen_on"], holds


def _holds(value: object, holds: tuple[float, float] | None) -> str:
    if holds is None:
        return "not known"
    low, high = holds
    narrow = isinstance(value, (int, float)) and (low * NARROW > value or high < value * NARROW)
    return f"{low:g} to {high:g}{', **narrow**' if narrow else ''}"


def operators() -> str:
    """Return the tables of operators: the facts of each, then what becomes of it on each target."""
    references = {name: reference_of(load_recipe(name).target) for name in target_names()}
    facts, on_targets = [], []
    for lines in zip(*references.values(), strict=True):
        facts.append(lines[0].facts)
        texts = ["" if line.target == "float" else line.target for line in lines]
        short = [text.replace("quantized, returns ", "").replace(", written as ", ", as ") for text in texts]
        on_targets.append([lines[0].operator, *short])
    return "\n\n".join(
        (
            table(("operator", "output", "activations", "weight", "bias", "look-up table"), facts),
            "## On each target",
            table(("operator", *references), on_targets),
            "## Taken apart first",
            "\n".join(taken_apart_text(TAKEN_APART)),
        )
    )


def schema() -> str:
    """Return the JSON Schema of configurations, as `qprof schema config` prints it."""
    return json.dumps(schemas.schema_of("config"), indent=2) + "\n"


PRINTERS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "documents": documents,
    "exchange": exchange,
    "extras": extras,
    "file": file,
    "findings": findings,
    "gates": gates,
    "limits": limits,
    "metrics": metrics,
    "notebooks": notebooks,
    "operators": operators,
    "options": options,
    "reasons": reasons,
    "targets": targets,
    "tuned": tuned,
}

FILES = {"configs/config.schema.json": schema}
"""Files that are printed whole; their tests hold them."""

API = ROOT / "docs" / "reference" / "api.md"
"""The page of the public names of Python, which is made and not kept."""
API_BEGIN = """# Python API

*For anyone who programs with `qprof_onnx`.*

Everything here is a name of `qprof_onnx`; `help(qprof_onnx)` has the same. Results have a short `repr`, a
table in notebooks, `to_dict()`, `to_markdown()` and `save("report.html")`; what takes a while takes
`progress=`: True for an occasional line, as in a notebook, False for none, or a function of (done, total).
[From Python](../how-to/python.md) shows them at work."""
RECORDS = """A function takes its settings and options as records, in which an editor completes names and a
type checker finds what is wrong; at a prompt the fields of these records are keywords of the
function as well: `quantize(model, data, calibrator="kl", limit=100)` is
`quantize(model, data, config=QuantConfig(calibrator="kl"), options=QuantizeOptions(limit=100))`."""
API_SECTIONS = {
    "What you call": (
        "profile quantize evaluate compare_layers tune card verify explain report diff merge "
        "instrument join split import_profile import_plan export"
    ),
    "Files, targets and operators": "load_profile load_plan target_names load_custom_operators",
    "What comes back": (
        "Profile TensorProfile QuantizeResult Verdict QuantPlan Evaluation Card Verification LayerReport "
        "TuneResult DriftReport Report"
    ),
    "Records that they take": (
        "QuantConfig QuantizeOptions Judge Gate TuneOptions RunSettings DriftLimits SpeedCheckOptions"
    ),
    "Errors": "QprofError ConfigError DataError ModelError PlanError ProfileError",
}


def make_api() -> None:
    """Write the page of Python, whole or not at all."""
    parts = [API_BEGIN, names()]
    for title, listed in API_SECTIONS.items():
        parts += [f"## {title}", *([RECORDS] if title.startswith("Records") else []), api(*listed.split())]
    part = API.with_suffix(f".{os.getpid()}.part")
    part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    part.replace(API)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(PRINTERS[sys.argv[1]](*sys.argv[2:]))
        sys.exit()
    make_api()
    for path in PAGES:
        path.write_text(printed(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, whole in FILES.items():
        (ROOT / name).write_text(whole(), encoding="utf-8")
