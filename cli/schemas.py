"""The JSON Schemas of files and of `--json` documents, made from records; and records that only these have.

It imports the whole quantizer: commands import it when they print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import reduce
from inspect import cleandoc
from operator import or_
from textwrap import indent
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from ..profiles.base.extras import OptionalModule
from ..profiles.base.findings import Finding
from ..profiles.base.options import ATTRIBUTES, sentences_of
from ..profiles.records.data_checks import InputCheck
from ..profiles.samples.constants import Constants
from ..profiles.samples.preprocessing import BUILT_IN, STATE
from ..profiles.samples.registry import READERS
from ..quantizer.api.evaluate import EvaluateResult
from ..quantizer.noise.estimate_check import Estimate
from ..quantizer.plan.plan import OutputCheck, PredictedTime, QuantPlan
from ..quantizer.plan.store import NOTATION
from ..quantizer.search.speed import SpeedCheck
from ..quantizer.search.verdict import FloatNodes, Judged
from ..quantizer.targets.config import QuantConfig
from ..quantizer.targets.loading import IDENTITY, ConfigFile
from ..quantizer.targets.target import Target, Verified
from .console import format_of

# ---------------------------------------- results that commands print


@dataclass(frozen=True)
class Quantization:
    """The JSON of `qprof quantize`.

    Attributes:
        model: file that was written.
        float_bytes, quantized_bytes: sizes of both models, external data included.
        nodes: kind to number of nodes.
        floats: nodes that stay float, a group for each code of a reason.
        findings: notes and warnings, the gravest first; an alarm is exit code 1.
        predicted: time of a run in float and quantized, from the target's kernel times; null without them.
        speed: measurements of --check-speed.
        checks: measured errors of the outputs on check samples, which also chose the ranges; empty if the
            model was not run and the quality is estimated.
        expected: estimated SQNR of the outputs, with its band.
        judged: the verdict and its evidence; null without held-out samples.
        passed: whether every limit is met, and no output is destroyed.
    """

    model: str
    float_bytes: int
    quantized_bytes: int
    nodes: Mapping[str, int]
    floats: tuple[FloatNodes, ...]
    findings: tuple[Finding, ...]
    predicted: PredictedTime | None
    speed: SpeedCheck | None
    checks: tuple[OutputCheck, ...]
    expected: tuple[Estimate, ...]
    judged: Judged | None
    passed: bool


@dataclass(frozen=True)
class Profiling:
    """The JSON of `qprof dump-profile`.

    Attributes:
        profile: file that was written.
        tensors, samples: how many of them it has; a batch counts as its rows.
        runs: how many times the model ran: once for each sample or batch.
        inputs: the values of each input of the graph.
        check_samples: number of raw samples stored for tests of the quantized model.
        samples_file: the file with these samples; null for none.
        findings: notes and warnings about the data and the run.
    """

    profile: str
    tensors: int
    samples: int
    runs: int
    inputs: tuple[InputCheck, ...]
    check_samples: int
    samples_file: str | None
    findings: tuple[Finding, ...]


# ---------------------------------------- configuration files


def _keys(record: type, without: Collection[str] = ()) -> list[tuple[str, Any, Any]]:
    """Return the fields of a record, for another one."""
    hints = get_type_hints(record, include_extras=True)
    return [
        (entry.name, hints[entry.name], field(default=entry.default, default_factory=entry.default_factory))
        for entry in fields(record)
        if entry.name not in without
    ]


_FACTS = f"Facts about a runtime.{ATTRIBUTES}{(Target.__doc__ or '').partition(ATTRIBUTES)[2]}"
Runtime = make_dataclass("Runtime", _keys(Target, IDENTITY), namespace={"__doc__": _FACTS}, frozen=True)
"""The fields of `Target` that a file has under `runtime`."""


_IN_FILE = {"runtime": Runtime | None, "settings": QuantConfig | None, "verified": Verified | None}
ConfigDocument = make_dataclass(
    "ConfigDocument",
    [(name, _IN_FILE.get(name, kind), entry) for name, kind, entry in _keys(ConfigFile)],
    namespace={"__doc__": ConfigFile.__doc__},
)
"""A configuration file with its records."""


# ---------------------------------------- recipes of preprocessing, by reader

_ONE_OF: Any = Literal
"""Type checkers do not take words that are computed."""


def _recipe_document(reader: str, record: type) -> Any:
    """Return the record of a recipe file: reader, built-in recipe below it, keys of the recipe, state."""
    word = Annotated[_ONE_OF[(reader,)], Meta(description=f"the word {reader}")]
    built_in = tuple(name for name, recipe in BUILT_IN.items() if recipe["reader"] == reader)
    keys: list[Any] = [("reader", word, field(default=reader))] if built_in else [("reader", word)]
    if built_in:
        about = Meta(description="a built-in recipe, which supplies the missing keys")
        keys.append(("base", Annotated[_ONE_OF[built_in] | None, about], field(default=None)))
    keys += (own := _keys(record))
    keys.append(("state", Annotated[Mapping[str, str], Meta(description=STATE)], field(default_factory=dict)))
    if "constants" not in [name for name, *_ in own]:  # first values of states
        keys.append(("constants", Constants, field(default_factory=dict)))
    doc = (record.__doc__ or "").partition("\n")[0] + "".join(
        (record.__doc__ or "").partition(ATTRIBUTES)[1:]
    )
    return make_dataclass(f"{reader.capitalize()}Recipe", keys, namespace={"__doc__": doc})


RecipeDocument = reduce(
    or_,
    (
        _recipe_document(reader.takes[0], reader.recipe)
        for reader in READERS[:-1]
        if reader.module.is_installed
    ),
)
"""A recipe file, for any reader."""

# ---------------------------------------- the schemas

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REF, USED = "#/$defs/{name}", r"#/\$defs/(\w+)"
NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
"""A number of a `--json` document: JSON has no infinity."""
_ARRAYS: dict[object, dict[str, Any]] = {np.ndarray: {"type": "array"}, Callable: {"not": {}}}
"""Schemas of types that msgspec does not know; a field describes its elements. Functions are only in records
without a document."""


@dataclass(frozen=True)
class Document:
    """One kind of file or `--json` document."""

    about: str  # where it comes from, in a few words
    record: Any  # its type, or a union of types
    version: int = 0  # in its key `format`; 0 without one
    more: Mapping[str, Any] | None = None  # keys besides the fields of the record, with their types
    notation: Mapping[type, type] = field(default_factory=dict)  # the records that have other fields in it


_NAMES = tuple[str, ...]


def _of_plugin(module: str, record: str) -> Any:
    """Return the record of a document that a plug-in makes; None if the plug-in is not installed."""
    place = OptionalModule(record, module)
    return getattr(place.load(), record) if place.is_installed else None


_ALL_DOCUMENTS: Mapping[str, Document] = {
    "config": Document("a configuration file, for --config", ConfigDocument),
    "preprocess": Document("a recipe, for --preprocess", RecipeDocument),
    "plan": Document("a plan: quantize --save-plan", QuantPlan, 1, notation=NOTATION),
    "quantization": Document("quantize --json", Quantization, 1),
    "profiling": Document("dump-profile --json", Profiling, 1),
    "evaluation": Document("evaluate --json", EvaluateResult, 1, {"passed": bool}),
    "card": Document("a card: evaluate --card", _of_plugin("quantizer.plugins.card.record", "Card"), 1),
    "verification": Document(
        "verify --json",
        _of_plugin("quantizer.plugins.card.verification", "Verification"),
        1,
        {"passed": bool, "complete": bool},
    ),
    "layers": Document(
        "compare-layers --json", _of_plugin("quantizer.plugins.layers.layers", "LayerReport"), 1
    ),
    "tuning": Document(
        "tune --json",
        _of_plugin("quantizer.plugins.tune.tune", "TuneResult"),
        1,
        {"target_met": bool, "verified": bool, "float_nodes": _NAMES},
    ),
    "drift": Document(
        "diff --json", _of_plugin("quantizer.plugins.drift.drift", "DriftReport"), 1, {"passed": bool}
    ),
    "report": Document("report.json", _of_plugin("quantizer.plugins.report.content", "Report"), 1),
    "explanation": Document(
        "show PLAN NAME --json", _of_plugin("quantizer.plugins.explanation.explanation", "Explanation"), 1
    ),
}
"""Every document with a schema. A new `--json` document is one entry here."""

DOCUMENTS = {name: document for name, document in _ALL_DOCUMENTS.items() if document.record is not None}
"""Documents of installed plug-ins."""


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of `DOCUMENTS`; unknown keys are refused by it."""
    document = DOCUMENTS[name]
    kinds = get_args(document.record) or (document.record,)
    refs, records = msgspec.json.schema_components(
        (*kinds, *document.notation.values()), ref_template=REF, schema_hook=_ARRAYS.__getitem__
    )
    refs = refs[: len(kinds)]
    if document.notation:
        pairs = document.notation.items()
        names = {REF.format(name=a.__name__): REF.format(name=b.__name__) for a, b in pairs}
        records = _used(_as_in_file(records, names), refs)
    elif document.version:
        records = _with_infinities(records)
    for ref in refs if document.version else ():
        _add_keys(records[ref["$ref"].rpartition("/")[2]], name, document)
    bases = {kind.__name__: [base.__doc__ or "" for base in kind.__mro__[1:]] for kind in kinds}
    for title, record in records.items():
        if "properties" in record:
            record["additionalProperties"] = False
            _describe(record, bases.get(title, []))
    top = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    return {"$schema": DRAFT, "title": f"qprof {name}: {document.about}", **top, "$defs": records}


def _as_in_file(schema: Any, refs: Mapping[str, str]) -> Any:
    """Return a schema that refers to the records of the file, without defaults that are records in memory."""
    if isinstance(schema, dict):
        return {
            key: refs.get(value, value) if key == "$ref" else _as_in_file(value, refs)
            for key, value in schema.items()
            if key != "default" or not isinstance(value, dict)
        }
    return [_as_in_file(item, refs) for item in schema] if isinstance(schema, list) else schema


def _used(records: dict[str, Any], refs: Sequence[Any]) -> dict[str, Any]:
    """Return the records that some begin with, in their order, and those that these lead to."""
    used, left = set[str](), re.findall(USED, json.dumps(refs))
    while left:
        name = left.pop()
        if name not in used:
            used.add(name)
            left += re.findall(USED, json.dumps(records[name]))
    return {name: record for name, record in records.items() if name in used}


def _add_keys(record: dict[str, Any], name: str, document: Document) -> None:
    """Add the key `format` before the fields of the record, and those of `more` after them."""
    head = {"format": {"const": format_of(name, document.version)}}
    more = {key: msgspec.json.schema(kind) for key, kind in (document.more or {}).items()}
    record["properties"] = {**head, **record["properties"], **more}
    record["required"] = [*head, *record["required"], *more]


def _describe(record: dict[str, Any], of_bases: Sequence[str] = ()) -> None:
    """Give each property the sentence that the docstring of its record, or of one of its bases, has on it."""
    # From msgspec 0.23 on descriptions have no indentation, and empty mappings are defaults.
    for entry in record["properties"].values():
        if entry.get("default") == {}:
            del entry["default"]
    own = indent(cleandoc(record.get("description", "")), " " * 4).lstrip()
    record["description"] = " ".join(own.partition(ATTRIBUTES)[0].split())
    for text in (own, *of_bases):
        for name, sentence in sentences_of(text).items():
            if name in record["properties"]:
                record["properties"][name].setdefault("description", sentence)


def _with_infinities(schema: Any) -> Any:
    if isinstance(schema, dict):
        if schema.get("type") == "number":
            rest = {key: value for key, value in schema.items() if key != "type"}
            return {**rest, **NUMBER}
        return {key: _with_infinities(value) for key, value in schema.items()}
    return [_with_infinities(item) for item in schema] if isinstance(schema, list) else schema
