"""Connections of a joined model's inputs to outputs of parts: by the user's word, or by names.

Inputs of the same name in two parts stay separate: an encoder and its decoder both call their tokens
`input_ids`, but these differ. Only inputs that a decoder explicitly names as encoder inputs are shared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import onnx_ir as ir

from ....profiles.base.errors import ConfigError, nearest
from ....profiles.samples.states import USUAL_STATES, text_at_star
from .parts import SEPARATOR

End: TypeAlias = tuple[str, str]
"""An input or an output: its part, and its name there; the part of an input of the joined model is ""."""

Sources: TypeAlias = Mapping[End, End]
"""The output, or the input of the joined model, that an input of a part reads."""

Ends: TypeAlias = Mapping[str, Mapping[str, ir.Value]]
"""Inputs, or outputs, by their names in the part's file, by part."""

USUAL_PAIRS: Sequence[tuple[str, str]] = (
    ("last_hidden_state", "encoder_hidden_states"),
    *((made, taken) for made, taken in USUAL_STATES.items() if "*" in made),
    ("present_*", "past_*"),
)
"""Names of an output of one file and of the input of another that reads it, by optimum and by onnxruntime's
exporter of encoders and decoders; * is the same in both.
"""

MASK_OF_ENCODER = "encoder_"
"""Begins the name of a decoder's input that is an input of its encoder: `encoder_attention_mask`."""

WORDS_OF_FILES = ("model", "merged", "quantized", "fp32", "fp16")
"""Words in the name of a file that do not say which part it is."""


def connections(inputs: Ends, outputs: Ends, wanted: Sequence[str]) -> Sources:
    """Return the source of every input of every part.

    One that `wanted` does not name ("PART:INPUT=PART:OUTPUT", or "=NAME" for an input of the whole) reads
    the output of its name or the usual one, else becomes an input of the whole.
    """
    stated = dict(_parsed(text, inputs, outputs) for text in wanted)
    sources: dict[End, End] = {}
    for part, names in inputs.items():
        for name in names:
            end = part, name
            if end in stated:
                sources[end] = stated[end]
            elif (found := _source_by_name(end, outputs)) or (found := _usual_source(end, inputs, outputs)):
                sources[end] = found
    for part in inputs:
        if not any(maker and part in (reader, maker) for (reader, _), (maker, _) in sources.items()):
            others = [f"{o}{SEPARATOR}{name}" for o, names in outputs.items() if o != part for name in names]
            raise ConfigError(
                f"part {part}: is not connected to another part; its inputs are "
                f"{', '.join(inputs[part])}, the outputs of the others {', '.join(others)}: connect them "
                "with --connect PART:INPUT=PART:OUTPUT, or quantize it separately"
            )
    order = _running_order(list(inputs), sources)
    sources |= _masks_of_encoders(order, inputs, sources)
    taken = {name for maker, name in sources.values() if not maker}
    taken |= {name for names in inputs.values() for name in names}
    plain: set[str] = set()
    for part in order:
        for name in inputs[part]:
            if (part, name) in sources:
                continue
            own = name
            if name in plain:
                words = [word for word in part.split("_") if word not in WORDS_OF_FILES]
                own = f"{'_'.join(words) or part}_{name}"
                own = f"{part}_{name}" if own in taken else own
            plain.add(name)
            taken.add(own)
            sources[part, name] = "", own
    return {(part, name): sources[part, name] for part, names in inputs.items() for name in names}


def _parsed(text: str, inputs: Ends, outputs: Ends) -> tuple[End, End]:
    def check(what: str, name: str, names: Collection[str]) -> None:
        if name not in names:
            raise ConfigError(
                f"connect '{text}': there is no {what} '{name}'; use one of {', '.join(names)}."
                f"{nearest(name, names)}"
            )

    left, _, right = text.partition("=")
    part, _, name = left.partition(SEPARATOR)
    if not right or not name:
        raise ConfigError(
            f"connect '{text}': not of the form PART:INPUT=PART:OUTPUT, nor PART:INPUT=NAME for an input of "
            "the joined model; write it like decoder:h=encoder:last_hidden_state"
        )
    check("part", part, inputs)
    check(f"input of {part}", name, inputs[part])
    source, separator, output = right.partition(SEPARATOR)
    if not separator or source not in outputs:
        return (part, name), ("", right)
    check(f"output of {source}", output, outputs[source])
    return (part, name), (source, output)


def _source_by_name(end: End, outputs: Ends) -> End | None:
    """Return the output that is called like an input; None for none."""
    reader, name = end
    makers = [part for part, names in outputs.items() if part != reader and name in names]
    if len(makers) > 1:
        raise _which(end, [(maker, name) for maker in makers])
    return (makers[0], name) if makers else None


def _usual_source(end: End, inputs: Ends, outputs: Ends) -> End | None:
    """Return the fitting output that exporters usually connect with an input of this name, or None."""
    reader, name = end
    made = [
        (maker, output.replace("*", found))
        for output, taker in USUAL_PAIRS
        if (found := text_at_star(taker, name)) is not None
        for maker in outputs
        if maker != reader
    ]
    made = [one for one in made if one[1] in outputs[one[0]]]
    made = [(part, one) for part, one in made if not misfit(inputs[reader][name], outputs[part][one])]
    if len(made) > 1:
        raise _which(end, made)
    return made[0] if made else None


def _which(end: End, made: Sequence[End]) -> ConfigError:
    shown = [SEPARATOR.join(one) for one in made]
    return ConfigError(
        f"part {end[0]}: its input '{end[1]}' could read {' and '.join(shown)}; say which with "
        f"--connect {SEPARATOR.join(end)}={shown[0]}"
    )


def _running_order(parts: Sequence[str], sources: Sources) -> tuple[str, ...]:
    """Return the parts in running order, those that may swap as given; raise ConfigError for a cycle."""
    order: TopologicalSorter[str] = TopologicalSorter({part: set[str]() for part in parts})
    for (reader, _), (maker, _) in sources.items():
        if maker:
            order.add(reader, maker)
    try:
        order.prepare()
    except CycleError as problem:
        loop, place = set(problem.args[1]), {part: index for index, part in enumerate(parts)}
        reader = next(
            f"{part}{SEPARATOR}{name}"
            for (part, name), (maker, _) in sources.items()
            if {part, maker} <= loop and place[part] < place[maker]
        )
        names = " and ".join(sorted(loop, key=place.__getitem__))
        raise ConfigError(
            f"parts {names}: each reads an output of the other, so none can run first; make an input one of "
            f"the whole: --connect {reader}=NAME, or leave out a part"
        ) from None
    ordered: list[str] = []
    while order.is_active():
        ready = sorted(order.get_ready(), key=list(parts).index)
        ordered += ready
        order.done(*ready)
    return tuple(ordered)


# A mask over what the encoder gives: the encoder's own -----------------------------------------------------


def _masks_of_encoders(order: Sequence[str], inputs: Ends, sources: Sources) -> dict[End, End]:
    """Return the inputs `encoder_NAME` that read the input NAME of the only part before that has one."""
    found: dict[End, End] = {}
    for place, reader in enumerate(order):
        for name, value in inputs[reader].items():
            taken = name.removeprefix(MASK_OF_ENCODER)
            if taken == name or (reader, name) in sources:
                continue
            free = [part for part in order[:place] if (part, taken) not in sources]
            makers = [part for part in free if taken in inputs[part]]
            if len(makers) == 1 and not misfit(value, inputs[makers[0]][taken]):
                found[reader, name] = "", taken
    return found


def joined_name(end: End) -> str:
    """Return the name of an input or an output in the joined model."""
    return SEPARATOR.join(filter(None, end))


# Types and shapes ------------------------------------------------------------------------------------------


def misfit(value: ir.Value, made: ir.Value) -> bool:
    """Whether an input cannot read a value, by type or shape; unknown ones fit."""
    if value.type is not None and made.type is not None and value.type != made.type:
        return True
    if value.shape is None or made.shape is None:
        return False
    pairs = zip(value.shape, made.shape, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    return differ or len(value.shape) != len(made.shape)
