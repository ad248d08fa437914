"""Which parts a joined model has: a record in its metadata, which `join` writes and `split` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeAlias

import msgspec
import onnx_ir as ir
from msgspec import Meta

from ....profiles.base.errors import ModelError

RECORD = "qprof.parts"
"""Key in the metadata of a joined model."""

SEPARATOR = ":"
"""Between the name of a part and a name of its file: `encoder:h`."""

Dims: TypeAlias = tuple[Annotated[int, Meta(ge=-1, le=2**63 - 1)] | str | None, ...]


@dataclass(frozen=True)
class Port:
    """An input or output of a part."""

    name: str  # in the joined model
    shape: Dims | None = None  # as declared: sizes, symbols, None for free dimensions; None for any rank


@dataclass(frozen=True)
class Part:
    """One file of a joined model."""

    name: str  # begins the names of its nodes and tensors in the joined model
    inputs: Mapping[str, Port]  # by their names in the part's file
    outputs: Mapping[str, Port]
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the part's file

    def own_name(self, name: str) -> str:
        """Return the name that a node or tensor of this part has in its file; other names stay."""
        return name.removeprefix(self.name + SEPARATOR)


def part_name_problem(name: str) -> str:
    """Return the fault of a part's name, which becomes that of a file; "" for none."""
    if not name.strip(" .") or not name.isprintable():
        return "is empty, or has characters that cannot be printed"
    if any(char in name for char in f"{SEPARATOR}=/\\"):
        return f"has a '{SEPARATOR}', '=', '/' or '\\'"
    return ""


def shape_of(value: ir.Value) -> Dims | None:
    """Return the declared shape of a value; None for an unknown rank."""
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def write_parts(model: ir.Model, parts: Sequence[Part]) -> None:
    """Put the record into the metadata of a model."""
    content = json.dumps([asdict(part) for part in parts], separators=(",", ":"), ensure_ascii=False)
    model.metadata_props[RECORD] = content


def read_parts(model: ir.Model, where: str) -> tuple[Part, ...]:
    """Return the parts recorded in a joined model; raise ModelError if the record is missing or damaged."""
    text = model.metadata_props.get(RECORD)
    if text is None:
        raise ModelError(
            f"{where}: was not joined of parts by qprof join, so there is nothing to split; give the joined "
            "float model"
        )
    try:
        content: Any = msgspec.json.decode(text, type=list[Part])
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise _damaged(where, str(problem)) from None
    names: list[str] = []
    for part in content:
        if reason := part_name_problem(part.name) or ("is repeated" if part.name in names else ""):
            raise _damaged(where, f"the name of a part, '{part.name}', {reason}")
        names.append(part.name)
        ports = {**part.inputs, **part.outputs}
        if not all(name and port.name for name, port in ports.items()):
            raise _damaged(where, f"an input or output of part {part.name} has no name")
        if not part.outputs:
            raise _damaged(where, f"part {part.name} has no outputs")
    return tuple(content)


def _damaged(where: str, problem: str) -> ModelError:
    return ModelError(f"{where}: the record of its parts is damaged ({problem}); join them again")
