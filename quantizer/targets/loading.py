"""What a runtime can execute, and the settings that suit it: one YAML file in configs/ for each target.

A file has up to seven keys:

    target: onnxruntime-x86          # the name; of a packaged target, or auto, when `runtime` is left out
    base: onnxruntime-arm            # a packaged target: what is not given here is taken from it
    description: one line
    sources: [where the facts below were read or measured]
    verified: {how: run, runtime: onnxruntime 1.32.0, date: "2026-11-22"}   # how: run, or rule
    runtime:                         # facts about the runtime: the fields of `Target`
      activation_types: [uint8, int8]
      operators: {Conv: [quantized], MatMul: [quantized, float]}
    settings:                        # the fields of `QuantConfig`
      granularity: per-channel

`qprof schema config` prints their keys. Options of the command line override `settings`. A file is parsed,
then resolved (`resolved`: what one setting decides about another), then validated (`check_config`). Settings
of the user, from options or a file, are applied unchanged or rejected; settings of a packaged target may be
replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from ...profiles.base.conversion import read_fields, read_record
from ...profiles.base.errors import ConfigError, MalformedError, nearest, not_one_of
from ...profiles.base.extras import DISTRIBUTION
from ...profiles.base.findings import Code, Finding
from ...profiles.base.output_files import read_text
from ...profiles.base.strict_yaml import parse
from ...profiles.base.tool import note
from ..numerics.affine import TYPES
from ..numerics.schemas import SCHEMAS
from ..operators.functions import CHAIN
from ..operators.table import RULES
from .config import (
    DATA_FREE,
    FEW_BITS,
    FLOAT_TYPES,
    WEIGHT_ONLY_TYPES,
    QuantConfig,
    config_from_mapping,
    settings_from_mapping,
    unread_settings,
)
from .cost_table import is_file_of_costs, read_table
from .forms import FORMS
from .machine import processor
from .packaged import packaged_text, target_names
from .target import ALL_OTHERS, CHAIN_IMPLEMENTATIONS, LUT_IMPLEMENTATIONS, Recipe, Target, Verified

AUTO = "auto"
"""In the place of a target's name: the default one of this machine."""
OPTIONS = "options"
"""What settings are called in messages that come from no file."""
USUAL_BLOCK = 32
"""Default for 4-bit weights: one scale for a channel gives too low an SQNR."""
IDENTITY = ("name", "description", "sources", "verified")
"""Fields of `Target` that are not under `runtime`."""
SIGNED_SCHEMAS = tuple(n for n, s in SCHEMAS.items() if s.symmetric and not s.unsigned_when_positive)


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file: a target, or settings for one.

    Attributes:
        target: Name; without base and runtime, that of a packaged target.
        base: A packaged target, which supplies the missing keys.
        description: One line for people.
        sources: The sources of the facts: documents or measurements.
        verified: The evidence: whether models were run there, on which version, and when.
        runtime: Facts about the runtime, by the names of the fields of `Target`.
        settings: By the names of the fields of `QuantConfig`.
    """

    target: str = ""
    base: str = ""
    description: str = ""
    sources: tuple[str, ...] = ()
    verified: Mapping[str, Any] | None = None
    runtime: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None


Settings = Mapping[str, str | float | tuple[str, ...]]
"""Fields of `QuantConfig` that differ from the recipe's; names of nodes are added to those that it has."""


def load_recipe(
    source: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    runtime: Mapping[str, Any] | None = None,
) -> Recipe:
    """Return the settings of a packaged target or of a file, overruled by `overrides`."""
    name = AUTO if source is None else str(source)
    is_file = Path(name).suffix in {".yaml", ".yml", ".json"}
    own = _parsed(read_text(Path(name), ConfigError), name) if is_file else ConfigFile(target=name)
    file = _with_base(own, name)
    if file.target == AUTO:
        file = replace(file, target=default_target())
    if not is_file:
        name = f"configs/{file.target}.yaml"
        file = _packaged(file.target)
    elif file.runtime is None:
        file = _over(_packaged(file.target or default_target(), where=name), file)
    if runtime:
        with _malformed_in(OPTIONS):
            read_fields(runtime, Target, "runtime", without=IDENTITY)
        facts = file.runtime or {}
        merged = {
            key: {**facts.get(key, {}), **value} if isinstance(value, Mapping) else value
            for key, value in runtime.items()
        }
        file = replace(file, runtime={**facts, **merged}, verified=None)
    with _malformed_in(name):
        target = _target(file)
        of_file = settings_from_mapping(file.settings or {}, "settings")
    chosen = {key: value for key, value in (overrides or {}).items() if value is not None}
    with _malformed_in(OPTIONS):
        chosen = settings_from_mapping(chosen)
    given = {key: value for key, value in of_file.items() if key in (own.settings or {})} | chosen
    config = resolved({**of_file, "target": target.name, **chosen}, target, chosen)
    check_config(config, target, OPTIONS if chosen else name, given)
    for key, reason in unread_settings(config).items():
        if key in given:
            shown = ", ".join(given[key]) if isinstance(given[key], tuple) else given[key]
            sentence = f"{key} {shown} does nothing: {reason}"
            note(Finding(Code.SETTING_UNREAD, sentence, key, remedy="leave it out"))
    measured = None
    if is_file_of_costs(target.costs):
        beside = Path(name).parent if is_file and not (runtime or {}).get("costs") else Path()
        measured = read_table(beside / target.costs)
    return Recipe(config, target, measured, given=frozenset(given))


@cache
def packaged_targets() -> tuple[Target, ...]:
    """Return the packaged targets, sorted by name."""
    return tuple(load_recipe(name).target for name in target_names())


def default_target() -> str:
    """Return the target of this machine's processor; for unknown processors that of x86-64."""
    here = processor().kind
    return next((one.name for one in packaged_targets() if here in one.processors), QuantConfig.target)


@contextmanager
def _malformed_in(where: str) -> Iterator[None]:
    """Convert a malformed entry to a ConfigError, with the place `where`."""
    try:
        yield
    except MalformedError as problem:
        file_advice = "correct it; 'qprof schema config' prints the keys of the file"
        advice = "see 'qprof quantize --help'" if where == OPTIONS else file_advice
        raise ConfigError(problem.message(where, advice)) from None


@cache
def _packaged(name: str, where: str = "") -> ConfigFile:
    """Return the entries of a packaged target's file and of its base; errors call it `where`."""
    text, own = packaged_text(name, where), f"configs/{name}.yaml"
    file = _with_base(_parsed(text, own), own)
    if file.verified is None:
        raise ConfigError(
            f"{own}: verified is missing; say how its facts are known, as in "
            'verified: {how: rule, runtime: NAME and version, date: "2026-11-27"}'
        )
    return file


def _parsed(text: str, where: str) -> ConfigFile:
    """Return the entries of a file, its base aside."""
    with _malformed_in(where):
        document = parse(text)
        if not isinstance(document, dict):
            raise MalformedError("a configuration is a mapping with the keys target, runtime and settings")
        for record, level in ((QuantConfig, "settings"), (Target, "runtime")):
            for name in document.keys() - {f.name for f in fields(ConfigFile)}:
                if name in {f.name for f in fields(record)} - set(IDENTITY):
                    raise MalformedError(
                        f"'{name}' belongs under '{level}:'", f"write '{level}: {{{name}: ...}}'"
                    )
        return read_record({key: v for key, v in document.items() if v is not None}, ConfigFile)


def _with_base(file: ConfigFile, where: str) -> ConfigFile:
    """Return the entries of a file, completed by those of its base."""
    return _over(_packaged(file.base, where=where), file) if file.base else file


def _over(base: ConfigFile, file: ConfigFile) -> ConfigFile:
    """Return a file completed by the entries of its base, without the evidence of the base."""
    return ConfigFile(
        target=file.target or base.target,
        description=file.description or base.description,
        sources=(*base.sources, *file.sources),
        verified=file.verified or (base.verified if file.runtime is None else None),
        runtime={**(base.runtime or {}), **(file.runtime or {})},
        settings={**(base.settings or {}), **(file.settings or {})},
    )


def _lut_implementations(op_type: str) -> tuple[str, ...]:
    """Return the implementations that the look-up table of an operator, or of `ALL_OTHERS`, can have."""
    rule = RULES.get(("", op_type))
    through_sigmoid = rule is not None and rule.through_sigmoid
    return tuple(word for word in LUT_IMPLEMENTATIONS if word != "sigmoid" or through_sigmoid)


def _target(file: ConfigFile) -> Target:
    """Return the facts of a file about the runtime; MalformedError for a missing name or a wrong fact."""
    if not file.target:
        raise MalformedError("'target' must be the name of the target")
    facts = read_fields(file.runtime or {}, Target, "runtime", without=IDENTITY)
    for operator, word in facts.get("lookup_tables", {}).items():
        allowed = CHAIN_IMPLEMENTATIONS if operator == CHAIN else _lut_implementations(operator)
        if word not in allowed:
            raise not_one_of(f"runtime: lookup_table '{operator}'", word, allowed)
    operators = facts.get("operators", {})
    if ALL_OTHERS in operators:
        kernels = operators[ALL_OTHERS]
        named = {op_type: outputs for op_type, outputs in operators.items() if op_type != ALL_OTHERS}
        unnamed = [rule.op_type for rule in RULES.values() if not rule.unary and rule.op_type not in named]
        facts["operators"] = named | dict.fromkeys(unnamed, kernels)
    verified = None
    if file.verified is not None:
        verified = read_record(file.verified, Verified, "verified")
        try:
            date.fromisoformat(verified.date)
        except ValueError:
            raise MalformedError(
                f"verified: date '{verified.date}' is not a date", "write it as 2026-11-22"
            ) from None
    return Target(file.target, file.description, file.sources, verified, **facts)


def resolved(settings: Mapping[str, Any], target: Target, chosen: Mapping[str, Any]) -> QuantConfig:
    """Return the settings with those that follow from others filled in.

    `settings` are those of file and options; `chosen`, those of the options, are never replaced.
    """
    config = QuantConfig(**settings)
    signed = [name for name in target.activation_types if TYPES[name].signed]
    wants_signed = config.schema in SIGNED_SCHEMAS and not TYPES[config.activation_type].signed
    if wants_signed and signed and "activation_type" not in chosen:
        config = replace(config, activation_type=signed[0])
    for name, other in (("weight_type", "activation_type"), ("activation_type", "weight_type")):
        own, like = getattr(config, name), getattr(config, other)
        if like in FLOAT_TYPES and own != like and name not in chosen and config.mode not in DATA_FREE:
            config = replace(config, **{name: like})  # products have one floating-point type
    if config.activation_type in FLOAT_TYPES and "calibrator" not in chosen:
        config = replace(config, calibrator="minmax")  # its scale follows from the largest value
    weights = TYPES[config.weight_type]
    if (weights.scales is not None or config.weight_type in FEW_BITS) and "block_size" not in settings:
        block = USUAL_BLOCK if weights.scales is None else weights.scales.block_size
        config = replace(config, block_size=block)
    is_small = not weights.is_float and config.weight_type in FEW_BITS
    if is_small and config.block_size and "weight_schema" not in settings:
        config = replace(config, weight_schema="asymmetric")
    return config


def check_config(config: QuantConfig, target: Target, where: str, given: Collection[str] = ()) -> QuantConfig:
    """Return `config` unchanged, or raise ConfigError; nothing may change a setting that the user `given`."""
    try:
        config_from_mapping({field.name: getattr(config, field.name) for field in fields(QuantConfig)})
        for problem in (*_problems(config, target), *_broken_wishes(config, target, given)):
            raise problem
    except MalformedError as problem:
        raise ConfigError(problem.message(where, "choose other settings, or another target")) from None
    return config


def or_targets(has: Callable[[Target], bool]) -> str:
    """Return ", or target NAME" for the packaged targets that have something; "" for none."""
    names = [target.name for target in packaged_targets() if has(target)]
    return f", or target {' or '.join(names)}" if names else ""


def _no_kernel(
    name: str, config: QuantConfig, target: Target, own: Iterable[str], why: str = ""
) -> MalformedError:
    """Return the error for a type that a target has no kernel of, with the targets that have one."""
    word, of_weights = getattr(config, name), name == "weight_type"

    def has(one: Target) -> bool:
        of_data = (*one.activation_types, *one.float_types)
        return any(word in types for types in (one.weight_only.values() if of_weights else [of_data]))

    advice = f"use {', '.join(own)}{or_targets(has)}"
    return MalformedError(f"{name} {word}: {target.name} has no kernel of it{why}", advice)


def _problems(config: QuantConfig, target: Target) -> Iterator[MalformedError]:
    """Yield the contradictions between settings that are right by themselves."""
    if config.activation_type in FLOAT_TYPES and config.mode not in DATA_FREE:
        yield from _problems_of_floats(config, target)
    elif config.activation_type not in target.activation_types:
        yield _no_kernel("activation_type", config, target, target.activation_types)
    hybrid_types = [name for types in target.weight_only.values() for name in types]
    further = [name for name in hybrid_types if name in WEIGHT_ONLY_TYPES]
    weight_types = (*target.weight_types, *further, *target.float_types)
    if config.mode == "weight-only" and hybrid_types:
        stands_in = not TYPES[config.weight_type].is_float and "int8" in hybrid_types
        weight_types = (*(target.weight_types if stands_in else ()), *hybrid_types)
    weight_types = tuple(dict.fromkeys(weight_types))
    if config.has_size and config.mode != "weight-only":
        yield MalformedError(
            f"fit_size {config.fit_size}: chooses formats of weights in mode weight-only", "use --as mixed"
        )
    elif not config.has_size and config.weight_type not in weight_types:
        yield _no_kernel("weight_type", config, target, weight_types)
    if config.form not in target.forms:
        why = " (its operators are onnxruntime's own)" if config.form == "qoperator" else ""
        yield MalformedError(
            f"{target.name} does not read form '{config.form}'{why}", f"use form {' or '.join(target.forms)}"
        )
    elif not FORMS[config.form].module.is_installed:
        yield MalformedError(f"form '{config.form}' is not installed", f"install all of {DISTRIBUTION}")
    if config.float_type not in target.rest_types:
        yield MalformedError(
            f"float_type {config.float_type}: {target.name} does not accept it in a file",
            f"use float_type {' or '.join(target.rest_types)}",
        )
    if config.is_float16 and config.form != "qdq":
        yield MalformedError(
            f"float_type float16: form {config.form} has only float32 scales", "use form qdq, or float32"
        )
    if target.zero_points == "zero" and not {config.schema, config.weight_schema} <= set(SIGNED_SCHEMAS):
        yield MalformedError(
            f"{target.name} accepts only zero point 0", "use schema and weight_schema symmetric"
        )
    if config.schema in SIGNED_SCHEMAS and not TYPES[config.activation_type].signed:
        signed = [name for name in target.activation_types if TYPES[name].signed]
        what = "a signed activation_type" if signed else f"signed activations, which {target.name} has not"
        advice = f"use {signed[0]}, or schema symmetric-uint8" if signed else "use schema asymmetric"
        yield MalformedError(f"schema '{config.schema}' needs {what}", advice)
    limits = {"fit_size": config.has_size, "tolerance": config.tolerance is not None}
    limits["min_output_sqnr"] = config.min_output_sqnr is not None and not (
        config.has_size and config.min_output_sqnr == 0.0
    )
    asked = [f"{name} {getattr(config, name)}" for name, is_asked in limits.items() if is_asked]
    if len(asked) > 1:
        yield MalformedError(
            f"{' and '.join(asked)}: each decides how far outputs may be from float", "give one of them"
        )
    # At the border.
    if config.kv_cache != "float" and not target.int8_caches:
        yield MalformedError(
            f"kv_cache {config.kv_cache}: {target.name} has no operators for an int8 cache", "use float"
        )
    integers = ("int8",) if target.zero_points == "zero" else ("uint8", "int8")
    borders = [name for name in integers if name in target.activation_types]
    if not FORMS[config.form].conversions:
        borders = []
    if config.io not in ("float", *borders):
        yield MalformedError(
            f"io {config.io}: {target.name} has no integer inputs and outputs in form {config.form}",
            f"use io {' or '.join((*borders, 'float'))}",
        )
    # Modes.
    slow = set(target.slower_dynamic) if config.regards_time else set()
    kernels = {"dynamic": set(target.dynamic) - slow, "weight-only": target.weight_only}
    if config.mode in kernels and not kernels[config.mode]:
        faster = " that is faster than float" if config.mode == "dynamic" and target.dynamic else ""
        yield MalformedError(
            f"mode '{config.mode}': {target.name} has no kernel for it{faster}",
            "use mode static, or another target" if not faster else "use mode static, or cost_model off",
        )
    # Weights.
    if config.mode != "weight-only":
        or_mode = ", or that mode" if target.weight_only else ""
        if config.weight_type in WEIGHT_ONLY_TYPES:
            yield MalformedError(
                f"weight_type '{config.weight_type}' is for mode weight-only",
                f"use {target.weight_types[0]}{or_mode}",
            )
        if config.block_size:
            yield MalformedError(
                f"block_size {config.block_size} is for mode weight-only", f"leave it out{or_mode}"
            )
    weights = TYPES[config.weight_type]
    if weights.scales is not None and config.block_size != weights.scales.block_size:
        yield MalformedError(
            f"block_size {config.block_size}: {weights.name} has blocks of {weights.scales.block_size}",
            "leave it out",
        )
    if config.mode == "weight-only" and weights.is_float and config.weight_schema != "symmetric":
        yield MalformedError(
            f"weight_schema '{config.weight_schema}': {weights.name} has no zero points", "use symmetric"
        )
    if weights.is_float and config.rounding != "nearest":
        yield MalformedError(
            f"rounding '{config.rounding}': is for weights in integers", "use rounding nearest"
        )
    if config.weight_schema in SIGNED_SCHEMAS and not TYPES[config.weight_type].signed:
        granularity = "a block_size or granularity" if config.mode == "weight-only" else "granularity"
        yield MalformedError(
            f"weight_type '{config.weight_type}' needs weight_schema asymmetric",
            f"give {granularity} per-tensor with it; or use the signed type",
        )
    if config.granularity == "per-channel" and config.weight_schema == "asymmetric" and not config.block_size:
        yield MalformedError(
            "weights with a scale for each channel are symmetric",
            "use weight_schema symmetric, or granularity per-tensor",
        )


def _problems_of_floats(config: QuantConfig, target: Target) -> Iterator[MalformedError]:
    """Yield why products cannot have the requested floating-point type."""
    if config.activation_type not in target.float_types:
        others = [*target.float_types, *target.activation_types]
        slower = ": products are computed in float there, in three to five times the time of float"
        why = slower if target.processors else ""
        yield _no_kernel("activation_type", config, target, others[:2], why)
    if config.weight_type != config.activation_type:
        yield MalformedError(
            f"activation_type {config.activation_type} with weight_type {config.weight_type}: products have "
            "one floating-point type",
            "leave weight_type out",
        )
    reason = f"{config.activation_type} is for form qdq and mode static"
    if config.form != "qdq":
        yield MalformedError(f"form '{config.form}': {reason}", "use form qdq, or a type of integers")
    if config.mode != "static":
        yield MalformedError(f"mode '{config.mode}': {reason}", "use mode static, or a type of integers")
    if target.opsets is not None and target.opsets[1] < FLOAT_OPSET:
        yield MalformedError(
            f"activation_type {config.activation_type}: needs opset {FLOAT_OPSET}, and {target.name} "
            f"reads up to {target.opsets[1]}",
            "use a type of integers",
        )


FLOAT_OPSET = 21
"""In which floating-point types of 8 bits are written: the first with blocks in QuantizeLinear."""


def _broken_wishes(config: QuantConfig, target: Target, given: Collection[str]) -> Iterator[MalformedError]:
    """Yield the settings of the user that the target, or other settings, would not follow."""
    schema, weight_schema = SCHEMAS[config.schema], SCHEMAS[config.weight_schema]
    signed = TYPES[config.activation_type].signed

    # Activations.
    word = config.activation_type
    fixes = {"activation_type": f"activation_type u{word}", "schema": "--schema symmetric-uint8"}
    for name, fix in fixes.items() if target.unsigned_activations and signed else ():
        if name in given:
            others = or_targets(lambda one: not one.unsigned_activations and word in one.activation_types)
            sentence = f"{name} '{getattr(config, name)}': activations of {target.name} are unsigned"
            yield MalformedError(sentence, f"use {fix}{others}")
    if schema.unsigned_when_positive and not target.unsigned_activations and not signed:
        sign = config.activation_type.removeprefix("u")
        if sign not in target.activation_types and "schema" in given:
            yield MalformedError(f"schema '{config.schema}': {target.name} has no activations in {sign}")
        if {"schema", "activation_type"} <= set(given):
            yield MalformedError(
                f"activation_type '{config.activation_type}': schema {config.schema} has {sign} for "
                "activations below 0",
                f"leave activation_type out, or use {sign}",
            )

    if config.activation_type in FLOAT_TYPES and config.calibrator != "minmax" and "calibrator" in given:
        yield MalformedError(
            f"calibrator '{config.calibrator}': {config.activation_type} has finer steps for smaller values, "
            "so that cutting a range gains nothing",
            "leave calibrator out: the scale follows from the largest magnitude",
        )

    # Weights.
    weights = TYPES[config.weight_type]
    if weight_schema.unsigned_when_positive and not weights.signed and "weight_type" in given:
        yield MalformedError(
            f"weight_type '{config.weight_type}': weight_schema {config.weight_schema} has signed types for "
            "weights below 0",
            "use weight_schema asymmetric, or the signed type",
        )
    if config.block_size and config.granularity == "per-tensor" and "granularity" in given:
        why = "" if "block_size" in given else f", as weights of {weights.bits} bits have"
        yield MalformedError(
            f"granularity 'per-tensor': blocks of {config.block_size} have a scale each{why}",
            "leave granularity out, or use block_size 0 with weights of 8 bits",
        )
    if config.weight_type in FEW_BITS and not config.block_size and "block_size" in given:
        yield MalformedError(
            f"block_size 0: weights of {weights.bits} bits have blocks",
            f"use block_size {USUAL_BLOCK}, or weights of 8 bits",
        )

    for name in ("weight_type", "weight_schema", "block_size") if config.has_size else ():
        if name in given:
            yield MalformedError(
                f"{name} {getattr(config, name)}: fit_size {config.fit_size} chooses the format of each "
                "weight",
                f"leave {name} or fit_size out",
            )


def parsed_lines(lines: Iterable[str], others: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    """Return settings and facts of lines such as `calibrator=kl`; an error suggests a key of `others` too."""
    settings: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    names = [f.name for f in fields(QuantConfig)]
    lists = [f.name for f in fields(QuantConfig) if f.default == ()]
    levels = ["runtime." + f.name for f in fields(Target) if f.name not in IDENTITY]
    for line in lines:
        key, equals, text = line.partition("=")
        if not equals or not text.strip():
            raise ConfigError(f"--set {line}: is not a key and a value; write it as --set calibrator=kl")
        with _malformed_in(f"--set {key}"):
            value = parse(text)
        level, _, rest = key.partition(".")
        name, _, entry = rest.partition(".")
        if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)? ?%", value):
            value = float(value.rstrip("% ")) / 100
        if not rest and level in lists:
            settings[level] = [*settings.get(level, ()), *(value if isinstance(value, list) else [value])]
        elif not rest and level in names:
            settings[level] = value
        elif level == "settings" and rest in names:
            settings[rest] = value
        elif level == "runtime" and f"{level}.{name}" in levels:
            if entry and not isinstance(runtime.get(name, {}), dict):
                raise ConfigError(f"--set {key}: {name} is set as a whole too; leave one out")
            runtime[name] = {**runtime.get(name, {}), entry: value} if entry else value
        else:
            near = nearest(key, [*names, *others, *levels])
            raise ConfigError(f"--set: unknown key '{key}'; 'qprof schema config' lists the keys.{near}")
    return settings, runtime


def with_settings(
    recipe: Recipe,
    settings: Settings,
    where: str,
    *,
    why_float: str = "qprof keeps it float, as a trial showed",
) -> Recipe:
    """Return a recipe with settings that qprof chose; names of nodes are added to those of the recipe."""
    changes: dict[str, Any] = dict(settings)
    if "keep_float" in changes:
        changes["keep_float"] = tuple(dict.fromkeys((*recipe.config.keep_float, *changes["keep_float"])))
    added = {n: why_float for n in changes.get("keep_float", ()) if n not in recipe.config.keep_float}
    config = check_config(replace(recipe.config, **changes), recipe.target, where)
    return replace(recipe, config=config, own_floats={**recipe.own_floats, **added})


def goes_with(recipe: Recipe, settings: Settings) -> bool:
    """Whether the target of a recipe takes these settings beside the recipe's."""
    try:
        with_settings(recipe, settings, OPTIONS)
    except ConfigError:
        return False
    return True


def weight_only_settings(recipe: Recipe) -> Settings | None:
    """Return settings that quantize only weights, to 8 bits, and keep the given ones; None if impossible."""
    config, target, given = recipe.config, recipe.target, recipe.given
    stored = {name for types in target.weight_only.values() for name in types}
    own = config.weight_type
    is_kept = "weight_type" in given and own not in WEIGHT_ONLY_TYPES
    unsigned = {"weight_schema": "asymmetric", "granularity": "per-tensor"}  # as such types have to be
    for name in (own,) if is_kept else ("int8", "uint8"):
        asked = {"mode": "weight-only", "weight_type": name, **({} if TYPES[name].signed else unsigned)}
        new = {key: value for key, value in asked.items() if getattr(config, key) != value}
        keeps = new.keys().isdisjoint(given - {"mode", "weight_type"})
        if TYPES[name].storage in stored and keeps and goes_with(recipe, new):
            return new
    return None
