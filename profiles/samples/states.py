"""Inputs that take an output of the run before: a cache of keys and values, the state of a recurrent net.

Samples of such a model are steps of sequences: pieces of a text, windows of a recording, rows of a file. A
reader gives each step without the state. This module runs the float model from the first step of the sequence
and fills the state in. All other code treats steps like any samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import ConfigError, DataError, nearest
from ..base.json_values import settings_beside
from .batches import fixed_batch
from .constants import constant_arrays
from .preprocessing import Preprocessing
from .values import InputSpec, Sample, Samples, checked_arrays, drawn_positions

Arrays = Mapping[str, npt.NDArray[Any]]

Run = Callable[[Sample, Sequence[str]], Arrays]
"""Runs the float model on a sample and returns these outputs by name."""

USUAL_STATES: Mapping[str, str] = {"present.*": "past_key_values.*", "logits": "input_ids"}
"""What exporters call the cache of a language model, and its tokens: outputs, and who takes them."""

GROWING = ("past", "cache")
"""Words in the names of inputs that hold nothing at first and grow with each step."""


@dataclass(frozen=True, eq=False)
class FloatModel:
    """The float model, as far as states need it."""

    outputs: tuple[InputSpec, ...]
    opened: Callable[[], AbstractContextManager[Run]]
    folder: Path | None = None

    def setting(self, *names: str) -> int | None:
        """Return a size in the config.json beside the model, under the first of these names that it has."""
        config = settings_beside((self.folder or Path()) / "config.json")
        sizes = (config.get(name) for name in names)
        return next((size for size in sizes if type(size) is int and size > 0), None)


@dataclass(frozen=True, eq=False)
class FedBack:
    """An input that takes an output of the run before."""

    input: str
    output: str
    first: npt.NDArray[Any] | None  # in the first step; None for tokens, of which the likeliest is taken
    spec: InputSpec

    def value(self, outputs: Arrays, before: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the value of the input after a run with these outputs and this value of the input."""
        values = outputs[self.output]
        if self.first is not None:
            return next_state(values, before)
        token = values.reshape(-1, values.shape[-1])[-1].argmax()
        return np.full((1,) * len(self.spec.shape or (1, 1)), token, self.spec.dtype)


def next_state(output: npt.NDArray[Any], before: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """Return the next state; a merged decoder returns the part of its encoder in the first step only."""
    return before if before is not None and before.size and not output.size else output


def fed_back(
    preprocessing: Preprocessing, inputs: Sequence[InputSpec], model: FloatModel | None
) -> tuple[FedBack, ...]:
    """Return the inputs that take outputs of the run before: by `state`, or, for texts, by usual names."""
    where = f"{preprocessing.name}: state"
    constants: Mapping[str, Any] = preprocessing.settings.get("constants") or {}
    state = preprocessing.state
    if not state and preprocessing.reader == "text" and model is not None:
        names = {spec.name for spec in inputs}
        joined = {"input_ids": "decoder_input_ids"} if "decoder_input_ids" in names else {}
        usual = {
            f"{part}{output}": name
            for output, usually in USUAL_STATES.items()
            for name in [joined.get(usually, usually)]
            if any(
                text_at_star(name, spec.name) is not None and spec.name not in constants for spec in inputs
            )
            for part in _parts_with(output, model.outputs)
        }
        # A cache of another name, of which the type, the shape and the name of one output are alike.
        alike = {
            one.fed_by: one.name for one in inputs if one.fed_by and _grows(one) and one.name not in constants
        }
        state = usual if any("*" in name for name in usual.values()) else alike
    if not state:
        return ()
    if model is None:
        raise ConfigError(f"{where}: is fed back by running the model, which is not known here; leave it out")
    if fixed_batch(inputs) > 1:
        raise ConfigError(
            f"{where}: the model expects {fixed_batch(inputs)} rows at a time, but steps run in sequence; "
            "export it with a batch of 1, or a free one"
        )
    pairs = [
        pair
        for theirs, mine in state.items()
        for pair in _matching_pairs(where, theirs, mine, inputs, model.outputs)
    ]
    states = {spec.name for spec, _ in pairs}
    given = {name: constant for name, constant in constants.items() if name in states}
    first_values = constant_arrays(preprocessing.name, given, inputs)
    batch_dims = {spec.shape[0] for spec in inputs if spec.shape and spec.name not in states}
    feedback = []
    for spec, output in pairs:
        first: npt.NDArray[Any] | None = None
        if spec.dtype.kind not in "iu" or output.dtype.kind in "iub":
            if spec.dtype != output.dtype or (
                spec.shape and output.shape and len(spec.shape) != len(output.shape)
            ):
                raise ConfigError(
                    f"{where}: output '{output.name}' is {output}, and input '{spec.name}' takes {spec}; "
                    "name others that fit"
                )
            first = first_values.get(spec.name)
            if first is None:
                first = _empty_state(where, spec, output, batch_dims, model)
        feedback.append(FedBack(spec.name, output.name, first, spec))
    return tuple(feedback)


def _parts_with(output: str, outputs: Sequence[InputSpec]) -> Sequence[str]:
    """Return the prefix of the last output that fits a pattern, "" or PART:, as the only element."""
    parts = ["".join(spec.name.rpartition(":")[:2]) for spec in reversed(outputs)]
    names = [spec.name.rpartition(":")[2] for spec in reversed(outputs)]
    found = [part for part, name in zip(parts, names, strict=True) if text_at_star(output, name) is not None]
    return found[:1]


# Inputs that look like states, and what a recipe says of inputs that have no value yet.

STEP_WORDS = (
    *("in", "out", "input", "output", "initial", "init", "final", "n", "t", "i", "o"),
    *("prev", "previous", "next", "new", "past", "present", "last", "old", "cur", "current"),
)
"""Words and letters by which the names of a state before and after a step differ."""


def state_output(spec: InputSpec, outputs: Sequence[InputSpec]) -> str:
    """Return the output that is alike and has the name of an input, but for words such as next; else ""."""
    fitting = [one for one in outputs if _is_alike(spec, one)]
    for numbers in (True, False):
        words = _words(spec.name, numbers=numbers)
        named = [one.name for one in fitting if words and _words(one.name, numbers=numbers) == words]
        if len(named) == 1:
            return named[0]
    # Names of nothing but such words, as past and present.
    if _words(spec.name, numbers=False) or not _grows(spec):
        return ""
    named = [one.name for one in fitting if not _words(one.name, numbers=False)]
    return named[0] if len(named) == 1 else ""


def _grows(spec: InputSpec) -> bool:
    """Return whether the name of an input is that of one that is empty at first and grows with each step."""
    return any(word in spec.name.lower() for word in GROWING)


def _is_alike(spec: InputSpec, output: InputSpec) -> bool:
    if spec.dtype != output.dtype or spec.dtype.kind == "O":
        return False
    if spec.shape is None or output.shape is None:
        return True
    sizes = zip(spec.shape, output.shape, strict=False)
    differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
    return len(spec.shape) == len(output.shape) and not differ


def _words(name: str, *, numbers: bool) -> list[str]:
    """Return the words of a name without those of steps, in lower case."""
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)
    words = [{"hn": "h", "cn": "c"}.get(word.lower(), word.lower()) for word in found]
    return [word for word in words if word not in STEP_WORDS and (numbers or not word.isdigit())]


def values_advice(specs: Sequence[InputSpec], values: Mapping[str, object] = MappingProxyType({})) -> str:
    """Return the lines of a recipe that give inputs values: states by `state`, others by `constants`."""
    state = ", ".join(f"{spec.fed_by}: {spec.name}" for spec in specs if spec.fed_by)
    others = ", ".join(f"{spec.name}: {values.get(spec.name, 'VALUE')}" for spec in specs if not spec.fed_by)
    lines = [f"'state: {{{state}}}'" if state else "", f"'constants: {{{others}}}'" if others else ""]
    return " and ".join(filter(None, lines))


def text_at_star(pattern: str, name: str) -> str | None:
    """Return the text in a name for the * of a pattern; "" without one, None for another name."""
    head, star, tail = pattern.partition("*")
    if not star:
        return "" if name == pattern else None
    fits = name.startswith(head) and name.endswith(tail) and len(name) >= len(head) + len(tail)
    return name[len(head) : len(name) - len(tail)] if fits else None


def _matching_pairs(
    where: str, theirs: str, mine: str, inputs: Sequence[InputSpec], outputs: Sequence[InputSpec]
) -> Iterator[tuple[InputSpec, InputSpec]]:
    """Yield the inputs that the pattern `mine` names, each with the output of `theirs` that it takes."""
    if theirs.count("*") != mine.count("*") or mine.count("*") > 1:
        raise ConfigError(f"{where}: '{theirs}: {mine}': both names have one *, or none; correct them")
    matches = [(spec, star) for spec in inputs if (star := text_at_star(mine, spec.name)) is not None]
    if not matches:
        names = [spec.name for spec in inputs]
        listed = ", ".join(f"'{name}'" for name in names)
        raise ConfigError(
            f"{where}: no input is called '{mine}'; the inputs are {listed}.{nearest(mine, names)} A line is "
            "OUTPUT: INPUT, as in present.*: past_key_values.*"
        )
    by_name = {output.name: output for output in outputs}
    for spec, star in matches:
        name = theirs.replace("*", star)
        if name not in by_name:
            listed = ", ".join(f"'{other}'" for other in by_name)
            raise ConfigError(
                f"{where}: input '{spec.name}' would read '{name}', which is not an output of the model; its "
                f"outputs are {listed}.{nearest(name, list(by_name))}"
            )
        yield spec, by_name[name]


def _empty_state(
    where: str, spec: InputSpec, output: InputSpec, batch_dims: set[int | str | None], model: FloatModel
) -> npt.NDArray[Any]:
    """Return the state before the first step: zeros, of no length along the axis that grows."""
    if spec.shape is None or spec.dtype.kind == "O":
        raise ConfigError(
            f"{where}: the first value of '{spec.name}' is unknown; give it, as constants: "
            f"{{{spec.name}: {{value: 0, shape: [...]}}}}"
        )
    grows = _grows(spec)
    sizes = []
    for axis, size in enumerate(spec.shape):
        if isinstance(size, int):
            sizes.append(size)
            continue
        after = output.shape[axis] if output.shape is not None else None
        changes = size is not None and after is not None and after != size
        is_batch = axis == 0 or (size is not None and size in batch_dims)
        configured = None
        if grows and len(spec.shape) == 4 and axis == 1:
            configured = model.setting("num_key_value_heads", "num_attention_heads", "n_head")
        elif grows and len(spec.shape) == 4 and axis == 3:
            width, heads = (
                model.setting("hidden_size", "n_embd"),
                model.setting("num_attention_heads", "n_head"),
            )
            configured = model.setting("head_dim") or (width // heads if width and heads else None)
        sizes.append(configured or (0 if not is_batch and (grows or changes) else 1))
    try:
        return np.zeros(sizes, spec.dtype)
    except (ValueError, OverflowError, MemoryError):  # sizes of a config.json, and of the model
        raise ConfigError(
            f"{where}: '{spec.name}' would be {sizes} at first, which exceeds the memory; correct the "
            "sizes in the config.json beside the model, or give the state as constants"
        ) from None


def without_state(
    preprocessing: Preprocessing, inputs: Sequence[InputSpec], feedback: Sequence[FedBack]
) -> tuple[Preprocessing, tuple[InputSpec, ...]]:
    """Return the recipe and the inputs for a reader of the steps: those of the model without the states."""
    states = {fed.input for fed in feedback if fed.first is not None}
    settings = dict(preprocessing.settings)
    others = {n: v for n, v in (settings.pop("constants", None) or {}).items() if n not in states}
    settings |= {"constants": others} if others else {}
    names = {fed.output: fed.input for fed in feedback}
    of_steps = replace(preprocessing, settings=settings, state=names)
    return of_steps, tuple(spec for spec in inputs if spec.name not in states)


def follows(sample: Sample, before: Sample | None) -> bool:
    """Return whether a sample is the step after another one of the same sequence."""
    if before is None or not sample.step or before.step is None:
        return False
    same = sample.name.rpartition("[")[0] == before.name.rpartition("[")[0]
    return same and sample.step == before.step + 1


def runs_with_own_state(
    samples: Iterable[Sample], state: Mapping[str, str], run: Callable[[Sample], Arrays]
) -> Iterator[Arrays]:
    """Yield the outputs of a model that is fed its own state in each step that follows another one."""
    before: Sample | None = None
    outputs: Arrays = {}
    taken: Arrays = {}
    for sample in samples:
        own: dict[str, npt.NDArray[Any]] = {}
        if follows(sample, before):
            own = {name: next_state(outputs[output], taken.get(name)) for name, output in state.items()}
        taken = {**sample.arrays, **own}
        outputs = run(replace(sample, arrays=taken))
        before = sample
        yield outputs


def with_states(
    samples: Samples, feedback: Sequence[FedBack], specs: Sequence[InputSpec], model: FloatModel
) -> Samples:
    """Return steps with their states; the model runs only if a later step of a sequence is needed."""
    wanted_outputs = list(dict.fromkeys(fed.output for fed in feedback))
    first = {fed.input: fed.first for fed in feedback if fed.first is not None}

    def filled(sample: Sample, before: Arrays) -> Sample:
        arrays = {**before, **sample.arrays}
        ordered = {spec.name: arrays[spec.name] for spec in specs if spec.name in arrays}
        return replace(sample, arrays=checked_arrays(sample.name, {**ordered, **arrays}, specs))

    def read(stop: int | None, is_wanted: Callable[[int], bool]) -> Iterator[Sample]:
        pending: list[Sample] = []
        before: Arrays = first
        with ExitStack() as stack:
            run: Run | None = None
            for number, sample in enumerate(samples.iterate(slice(0, stop))):
                if sample.step is None:
                    raise DataError(
                        f"{sample.name}: is not a step of a sequence, but the model has a state; give "
                        "a text, a recording cut into windows (window: in the recipe), or arrays whose rows "
                        "are the steps"
                    )
                if sample.step == 0:
                    pending, before = [], first
                pending.append(sample)
                if not is_wanted(number):
                    continue
                for earlier in pending[:-1]:
                    run = run or stack.enter_context(model.opened())
                    outputs = run(filled(earlier, before), wanted_outputs)
                    before = {fed.input: fed.value(outputs, before.get(fed.input)) for fed in feedback}
                pending = [filled(sample, before)]
                yield pending[0]

    def iterate(part: slice) -> Iterator[Sample]:
        start, step = part.start or 0, part.step or 1
        return read(part.stop, lambda number: number >= start and (number - start) % step == 0)

    return replace(
        samples,
        iterate=iterate,
        pick=lambda numbers: read(max(numbers, default=-1) + 1, numbers.__contains__),
        state={fed.input: fed.output for fed in feedback if fed.first is not None},
    )


MIN_SEQUENCES = 8
"""Least number of sequences that a limit draws: two of them are held out. With more, each would have few
steps, and states only matter after some steps."""


def drawn_steps(steps: Samples, limit: int) -> tuple[int, ...]:
    """Return the positions of `limit` steps, ascending, from sequences that are spread over all of them.

    Each sequence gives as many as the others, or all that it has: of a text from its first step on, of others
    from a place that moves from the beginning of the first sequence to the end of the last.
    """
    starts = []
    total, is_text = 0, False
    for sample in steps.iterate(slice(None)):
        is_text = is_text or sample.next_tokens is not None
        if not sample.step:
            starts.append(total)
        total += 1
    if total <= limit:
        return tuple(range(total))
    lengths = [stop - start for start, stop in pairwise([*starts, total])]
    sequences: tuple[int, ...] = ()
    while sum(lengths[at] for at in sequences) < limit:
        wanted = 2 * len(sequences) or min(MIN_SEQUENCES, limit)
        sequences = drawn_positions(len(starts), min(wanted, len(starts)))
    positions: list[int] = []
    for number, at in enumerate(sorted(sequences, key=lengths.__getitem__)):  # others give what one lacks
        share = min(lengths[at], (limit - len(positions)) // (len(sequences) - number))
        skipped = 0 if is_text else (lengths[at] - share) * sequences.index(at) // max(len(sequences) - 1, 1)
        positions += range(starts[at] + skipped, starts[at] + skipped + share)
    return tuple(sorted(positions))
