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

`qprof schema config` prints what each may hold. Options of the command line overrule `settings`. A file is
parsed, then resolved (`resolved`: what one setting decides about another), then validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ...profiles.base.conversion import read_fields, read_record
from ...profiles.base.errors import ConfigError, MalformedError, not_one_of, unknown_key
from ...profiles.base.output_files import read_text
from ...profiles.base.strict_yaml import parse
from ...profiles.base.tool import note
from ..numerics.affine import TYPES
from ..operators.functions import CHAIN
from ..operators.table import RULES
from .config import QuantConfig
from .conformance import SIGNED_SCHEMAS, check_config
from .machine import AUTO, Choice, Processors, choose, default_doubt, installed, processor
from .packaged import packaged_text, target_names
from .target import (
    ALL_OTHERS,
    CHAIN_IMPLEMENTATIONS,
    FEW_BITS,
    LUT_IMPLEMENTATIONS,
    Recipe,
    Target,
    Verified,
    settings_from_mapping,
)

T = TypeVar("T")

OPTIONS = "options"
"""What settings are called in messages that come from no file."""
ADVICE = {OPTIONS: "see 'qprof quantize --help'"}
FILE_ADVICE = "correct it; 'qprof schema config' prints what a file may hold"
USUAL_BLOCK = 32
"""For 4-bit weights when none is asked for: one scale for a channel leaves too low an SQNR."""
IDENTITY = ("name", "description", "sources", "verified")
"""Fields of `Target` that are not under `runtime`."""


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file as it is written, and with what its base holds.

    Attributes:
        target: name of the target.
        base: packaged target whose facts and settings hold where none are given, "" for none.
        description: one line for people.
        sources: where the facts were read or measured.
        verified: how they are known, by the names of the fields of `Verified`.
        runtime: facts about the runtime, by the names of the fields of `Target`.
        settings: by the names of the fields of `QuantConfig`.
    """

    target: str = ""
    base: str = ""
    description: str = ""
    sources: tuple[str, ...] = ()
    verified: Mapping[str, Any] | None = None
    runtime: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None


@cache
def packaged_targets() -> tuple[Target, ...]:
    """Return the packaged targets, sorted by name."""
    return tuple(load_recipe(name).target for name in target_names())


def machine_target() -> Choice:
    """Return the packaged target that this machine stands for, and why.

    Raises:
        ConfigError: there is none; the message names the targets that there are.
    """
    return choose(_processors(), processor(), installed())


def _processors() -> Processors:
    return {target.name: target.processors for target in packaged_targets()}


def load_recipe(
    source: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    runtime: Mapping[str, Any] | None = None,
) -> Recipe:
    """Return the settings of a packaged target or of a file, overruled by `overrides`.

    It is noted which target "auto" stands for here, and, where nobody named a target, that the default is not
    this machine's.

    Args:
        source: name of a packaged target, "auto" for this machine's, or path of a YAML file; None for the
            default target.
        overrides: values for fields of `QuantConfig`; None values are ignored.
        runtime: facts about the runtime, over those of the file; entries of a mapping one by one.

    Raises:
        ConfigError: no such target or file, unknown keys, values that are not allowed.
    """
    where, file, why = _file_of(source)
    if runtime:
        _told(OPTIONS, lambda: read_fields(runtime, Target, "runtime", without=IDENTITY))
        known = file.runtime or {}
        merged = {
            name: {**known.get(name, {}), **value} if isinstance(value, Mapping) else value
            for name, value in runtime.items()
        }
        file = replace(file, runtime={**known, **merged}, verified=None)
    target = _told(where, lambda: _target(file))
    if doubt := why or ("" if source is not None else _default_doubt(target)):
        note(doubt)
    given = _told(where, lambda: settings_from_mapping(file.settings or {}, "settings"))
    chosen = {key: value for key, value in (overrides or {}).items() if value is not None}
    chosen = _told(OPTIONS, lambda: settings_from_mapping(chosen))
    config, filled_in = resolved({**given, "target": target.name, **chosen}, target, chosen)
    config = check_config(config, target, OPTIONS if chosen else where)
    return Recipe(config, target, filled_in, why)


def parsed_lines(lines: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings and facts about the runtime that lines of a configuration file hold, in one line each.

    Args:
        lines: such as `calibrator=kl`, `settings.keep_float=[Gemm_9]` or `runtime.operators.Conv=[float]`:
            the keys of the file with dots between, the last 2 levels of `runtime` for an entry of a mapping.

    Raises:
        ConfigError: no key and value, or a key that is not known.
    """
    settings: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    names = [f.name for f in fields(QuantConfig)]
    levels = ["runtime." + f.name for f in fields(Target) if f.name not in IDENTITY]
    for line in lines:
        key, equals, text = line.partition("=")
        if not equals or not text.strip():
            raise ConfigError(f"--set {line}: is no key and value; write it as --set calibrator=kl")
        value = _told(f"--set {key}", lambda text=text: parse(text))  # type: ignore[misc]
        level, _, rest = key.partition(".")
        name, _, entry = rest.partition(".")
        if not rest and level in names:
            settings[level] = value
        elif level == "settings" and rest in names:
            settings[rest] = value
        elif level == "runtime" and f"{level}.{name}" in levels:
            if entry and not isinstance(runtime.get(name, {}), dict):
                raise ConfigError(f"--set {key}: {name} is set as a whole too; leave one out")
            runtime[name] = {**runtime.get(name, {}), entry: value} if entry else value
        else:
            known = [*names, *(f"settings.{name}" for name in names), *levels]
            problem = unknown_key("", key, known)
            raise ConfigError(f"--set: {problem}; {problem.advice}")
    return settings, runtime


def _file_of(source: str | Path | None) -> tuple[str, ConfigFile, str]:
    """Return what messages call a source, what it and its target hold, and how target auto was chosen."""
    name = QuantConfig.target if source is None else str(source)
    is_file = Path(name).suffix in {".yaml", ".yml"}
    file = _read(Path(name)) if is_file else ConfigFile(target=name)
    choice = machine_target() if file.target == AUTO and file.runtime is None else None
    why = "" if choice is None else choice.why
    if choice is not None:
        file = replace(file, target=choice.target)
    if is_file:
        based = (
            file
            if file.runtime is not None
            else _over(_packaged_of(name, file.target or QuantConfig.target), file)
        )
        return name, based, why
    return f"configs/{file.target}.yaml", _packaged(file.target), why


def _default_doubt(target: Target) -> str:
    """Return a sentence where the default is not the target of this machine, "" where it is."""
    here = processor()
    return "" if here.kind in target.processors else default_doubt(target.name, _processors(), here)


def resolved(
    settings: Mapping[str, Any], target: Target, chosen: Mapping[str, Any]
) -> tuple[QuantConfig, tuple[str, ...]]:
    """Return the settings with those that others decide filled in, and a sentence for each of these.

    Args:
        settings: what file and options say.
        target: the runtime.
        chosen: what the options say: a setting of a file may give way to them, one of theirs never does.
    """
    config, filled_in = QuantConfig(**settings), []
    signed = [name for name in target.activation_types if TYPES[name].signed]
    wants_signed = config.schema in SIGNED_SCHEMAS and not TYPES[config.activation_type].signed
    if wants_signed and signed and "activation_type" not in chosen:
        config = replace(config, activation_type=signed[0])
        filled_in.append(f"activation_type is {signed[0]}: schema {config.schema} needs a signed type")
    if config.weight_type in FEW_BITS and "block_size" not in settings:
        config = replace(config, block_size=USUAL_BLOCK)
        filled_in.append(f"block_size is {USUAL_BLOCK}: weights have 4 bits")
    if config.weight_type in FEW_BITS and config.block_size and "weight_schema" not in settings:
        config = replace(config, weight_schema="asymmetric")
        filled_in.append("weight_schema is asymmetric: blocks of 4 bits have zero points")
    return config, tuple(filled_in)


def _told(where: str, read: Callable[[], T]) -> T:
    """Return what `read` returns; what it finds malformed becomes a ConfigError that says where."""
    try:
        return read()
    except MalformedError as problem:
        raise ConfigError(problem.message(where, ADVICE.get(where, FILE_ADVICE))) from None


def _packaged(name: str) -> ConfigFile:
    return _parsed(packaged_text(name), f"configs/{name}.yaml")


def _read(path: Path) -> ConfigFile:
    return _parsed(read_text(path, ConfigError), str(path))


def _parsed(text: str, where: str) -> ConfigFile:
    file = _told(where, lambda: ConfigFile(**_top(parse(text))))
    return _over(_packaged_of(where, file.base), file) if file.base else file


def _packaged_of(where: str, name: str) -> ConfigFile:
    """Return the packaged target that a file names; the error about a name that is none says which file."""
    try:
        return _packaged(name)
    except ConfigError as problem:
        raise ConfigError(f"{where}: {problem}") from None


def _top(document: object) -> dict[str, Any]:
    """Return the keys of a file that have a value; a field of another level is told where it belongs."""
    if not isinstance(document, dict):
        raise MalformedError("a configuration is a mapping with the keys target, runtime and settings")
    for record, key in ((QuantConfig, "settings"), (Target, "runtime")):
        for name in document.keys() - {f.name for f in fields(ConfigFile)}:
            if name in {f.name for f in fields(record)} - set(IDENTITY):
                raise MalformedError(f"'{name}' belongs under '{key}:'", f"write '{key}: {{{name}: ...}}'")
    given = {key: value for key, value in document.items() if value is not None}
    return read_fields(given, ConfigFile)


def _over(base: ConfigFile, file: ConfigFile) -> ConfigFile:
    """Return what a file holds, and what its base holds where it holds nothing.

    Facts of its own are not those that were verified for the base.
    """
    return ConfigFile(
        target=file.target or base.target,
        description=file.description or base.description,
        sources=(*base.sources, *file.sources),
        verified=file.verified or (base.verified if file.runtime is None else None),
        runtime={**(base.runtime or {}), **(file.runtime or {})},
        settings={**(base.settings or {}), **(file.settings or {})},
    )


def _with_others(operators: Mapping[str, T]) -> dict[str, T]:
    """Return what each operator can return, with "*" as every operator of the table that it stands for."""
    named = {op_type: kernels for op_type, kernels in operators.items() if op_type != ALL_OTHERS}
    if ALL_OTHERS in operators:
        unnamed = [rule.op_type for rule in RULES.values() if not rule.unary and rule.op_type not in named]
        named |= dict.fromkeys(unnamed, operators[ALL_OTHERS])
    return named


def _target(file: ConfigFile) -> Target:
    if not file.target:
        raise MalformedError("'target' must be the name of the target")
    facts = read_fields(file.runtime or {}, Target, "runtime", without=IDENTITY)
    for operator, word in facts.get("lookup_tables", {}).items():
        known = CHAIN_IMPLEMENTATIONS if operator == CHAIN else LUT_IMPLEMENTATIONS
        if word not in known:
            raise not_one_of(f"runtime: lookup_table '{operator}'", word, known)
    if "operators" in facts:
        facts["operators"] = _with_others(facts["operators"])
    return Target(file.target, file.description, file.sources, _verified(file), **facts)


def _verified(file: ConfigFile) -> Verified | None:
    if file.verified is None:
        return None
    verified = read_record(file.verified, Verified, "verified")
    try:
        date.fromisoformat(verified.date)
    except ValueError:
        raise MalformedError(
            f"verified: date '{verified.date}' is no day", "write it as 2026-11-22"
        ) from None
    return verified
