"""The JSON Schemas of files and of `--json` documents, made from their records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from ..json_document import format_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
"""A number of a `--json` document: JSON has no infinity."""


@dataclass(frozen=True)
class Document:
    """One kind of file or `--json` document.

    Attributes:
        about: where it comes from, in a few words.
        record: returns its type, or a union of types; called when its schema is made: importing it may
            take long.
        version: of a `--json` document; 0 for a file that people write.
        more: keys besides the fields of the record, with their types.
    """

    about: str
    record: Callable[[], Any]
    version: int = 0
    more: Mapping[str, Any] | None = None


def _record(module: str, name: str) -> Callable[[], Any]:
    def load() -> Any:
        from importlib import import_module

        return getattr(import_module(module, __package__), name)

    return load


_QUANTIZER = "....quantizer"
_NAMES = tuple[str, ...]

DOCUMENTS: Mapping[str, Document] = {
    "config": Document("a configuration file, for --config", _record(".files", "ConfigDocument")),
    "preprocess": Document("a recipe, for --preprocess", _record(".recipes", "RecipeDocument")),
    "plan": Document(
        "a plan: quantize --save-plan, show --json", _record(f"{_QUANTIZER}.plan.store", "PlanFields")
    ),
    "quantization": Document("quantize --json", _record(".results", "Quantization"), 1),
    "operators": Document("rules --json", _record(".results", "Operators"), 1),
    "targets": Document("targets --json", _record(".results", "Targets"), 1),
    "profiling": Document("dump-profile --json", _record(".results", "Profiling"), 1),
    "shown-profile": Document("show PROFILE --json", _record(".results", "ShownProfile"), 1),
    "evaluation": Document(
        "evaluate --json", _record(f"{_QUANTIZER}.evaluation.evaluate", "Evaluation"), 1, {"passed": bool}
    ),
    "layers": Document("compare-layers --json", _record(f"{_QUANTIZER}.evaluation.layers", "LayerReport"), 1),
    "sensitivity": Document(
        "sensitivity --json",
        _record(f"{_QUANTIZER}.search.sensitivity", "Sensitivities"),
        1,
        {"keep_float": _NAMES},
    ),
    "tuning": Document(
        "tune --json",
        _record(f"{_QUANTIZER}.search.tune", "TuneResult"),
        1,
        {"target_met": bool, "verified": bool, "float_nodes": _NAMES, "limits": _NAMES},
    ),
    "drift": Document("diff --json", _record(f"{_QUANTIZER}.api.drift", "DriftReport"), 1, {"passed": bool}),
    "report": Document("report.json", _record(f"{_QUANTIZER}.report.content", "Report"), 1),
    "explanation": Document("explain --json", _record(".results", "Explanation"), 1),
}
"""Every document with a schema. A new `--json` document is one entry here."""


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of `DOCUMENTS`; unknown keys are refused by it."""
    document = DOCUMENTS[name]
    kind = document.record()
    kinds = get_args(kind) or (kind,)
    refs, records = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    if document.version:
        records = _with_infinities(records)
        for ref in refs:
            _add_keys(records[ref["$ref"].rpartition("/")[2]], name, document)
    for record in records.values():
        if "properties" in record:
            record["additionalProperties"] = False
            _describe(record)
    top = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    return {"$schema": DRAFT, "title": f"qprof {name}: {document.about}", **top, "$defs": records}


def _add_keys(record: dict[str, Any], name: str, document: Document) -> None:
    """Add the key `format` before the fields of the record, and those of `more` after them."""
    head = {"format": {"const": format_of(name, document.version)}}
    more = {key: msgspec.json.schema(kind) for key, kind in (document.more or {}).items()}
    record["properties"] = {**head, **record["properties"], **more}
    record["required"] = [*head, *record["required"], *more]


def _describe(record: dict[str, Any]) -> None:
    """Give each property the sentence that the docstring of its record has about it."""
    text, _, attributes = str(record.get("description", "")).partition("\n\n    Attributes:\n")
    record["description"] = " ".join(text.split())
    for names, sentence in re.findall(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", attributes, re.MULTILINE):
        for name in names.split(", "):
            if name in record["properties"]:
                record["properties"][name].setdefault("description", " ".join(sentence.split()))


def _with_infinities(schema: Any) -> Any:
    if isinstance(schema, dict):
        if schema.get("type") == "number":
            rest = {key: value for key, value in schema.items() if key != "type"}
            return {**rest, **NUMBER}
        return {key: _with_infinities(value) for key, value in schema.items()}
    return [_with_infinities(item) for item in schema] if isinstance(schema, list) else schema
