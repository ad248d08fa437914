"""Which output of which part each input reads: decided by names and by what the user says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ...profiles.base.errors import ConfigError, nearest
from .record import SEPARATOR


@dataclass(frozen=True)
class Interface:
    """What a part reads and returns.

    Attributes:
        name: of the part.
        inputs, outputs: their names in the part's file.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where an input of a part comes from.

    Attributes:
        part: whose output it is; "" for an input of the joined model.
        name: of that output, or of that input of the joined model.
    """

    part: str
    name: str

    @property
    def joined_name(self) -> str:
        """The name in the joined model."""
        return f"{self.part}{SEPARATOR}{self.name}" if self.part else self.name


Sources = Mapping[tuple[str, str], Source]
"""By part and input."""


def connections(parts: Sequence[Interface], wanted: Sequence[str]) -> Sources:
    """Return where every input of every part comes from.

    An input that nobody speaks of reads the output of the same name of another part, where one has it, or
    else is an input of the joined model, of the same name.

    Args:
        parts: in the order in which they were given.
        wanted: "PART:INPUT=PART:OUTPUT", or "PART:INPUT=NAME" with NAME an input of the joined model.

    Raises:
        ConfigError: something in `wanted` does not exist, an input could read several outputs, a part has
            nothing to do with the others, or parts read outputs of each other.
    """
    by_name = {part.name: part for part in parts}
    said = dict(_parsed(text, by_name) for text in wanted)
    found = {
        (part.name, name): said.get((part.name, name)) or _by_name(part, name, parts)
        for part in parts
        for name in part.inputs
    }
    _check_connected(parts, found)
    _check_order(parts, found)
    return found


def _parsed(text: str, parts: Mapping[str, Interface]) -> tuple[tuple[str, str], Source]:
    left, _, right = text.partition("=")
    part, _, name = left.partition(SEPARATOR)
    if not right or not name:
        raise ConfigError(
            f"connect '{text}': not of the form PART:INPUT=PART:OUTPUT, nor PART:INPUT=NAME for an input of "
            "the joined model; write it like decoder:h=encoder:last_hidden_state"
        )
    _check_name(text, "part", part, parts)
    _check_name(text, f"input of {part}", name, parts[part].inputs)
    source, separator, output = right.partition(SEPARATOR)
    if not separator or source not in parts:
        return (part, name), Source("", right)
    _check_name(text, f"output of {source}", output, parts[source].outputs)
    return (part, name), Source(source, output)


def _check_name(text: str, what: str, name: str, names: Mapping[str, object] | Sequence[str]) -> None:
    if name not in names:
        raise ConfigError(
            f"connect '{text}': there is no {what} '{name}'; use one of {', '.join(names)}."
            f"{nearest(name, names)}"
        )


def _by_name(reader: Interface, name: str, parts: Sequence[Interface]) -> Source:
    makers = [part.name for part in parts if part is not reader and name in part.outputs]
    if len(makers) > 1:
        raise ConfigError(
            f"part {reader.name}: its input '{name}' is an output of {' and of '.join(makers)}; say which "
            f"with --connect {reader.name}:{name}={makers[0]}:{name}"
        )
    return Source(makers[0] if makers else "", name)


def _check_connected(parts: Sequence[Interface], sources: Sources) -> None:
    pairs = {(source.part, reader) for (reader, _), source in sources.items() if source.part}
    touched = {part for pair in pairs for part in pair}
    for part in reversed(parts) if len(parts) > 1 else ():
        if part.name not in touched:
            others = [f"{o.name}{SEPARATOR}{name}" for o in parts if o is not part for name in o.outputs]
            raise ConfigError(
                f"part {part.name}: reads no output of another part, and none reads its outputs; its inputs "
                f"are {', '.join(part.inputs)}, the outputs of the others {', '.join(others)}: connect them "
                f"with --connect {part.name}:{part.inputs[0] if part.inputs else 'INPUT'}={others[0]}, or "
                "quantize it by itself"
            )


def _check_order(parts: Sequence[Interface], sources: Sources) -> None:
    """Check that the parts can run one after the other."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for (reader, _), source in sources.items():
        if source.part:
            order.add(reader, source.part)
    try:
        order.prepare()
    except CycleError as problem:
        loop, place = set(problem.args[1]), {part.name: index for index, part in enumerate(parts)}
        reader = next(
            f"{part}{SEPARATOR}{name}"
            for (part, name), source in sources.items()
            if {part, source.part} <= loop and place[part] < place[source.part]
        )
        names = " and ".join(sorted(loop, key=place.__getitem__))
        raise ConfigError(
            f"parts {names}: each reads an output of the other, so none can run first; make an input one of "
            f"the whole: --connect {reader}=NAME, or leave out a part"
        ) from None
