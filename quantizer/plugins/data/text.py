"""Samples from lines of text: `.txt` files, one text a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as of_field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ....profiles.base.errors import ConfigError, DataError
from ....profiles.base.extras import library
from ....profiles.base.findings import Code, Finding
from ....profiles.base.json_values import settings_beside
from ....profiles.samples.batches import has_batch, in_batches
from ....profiles.samples.constants import Constants, checked_names, constant_arrays
from ....profiles.samples.preprocessing import RECIPE, TOKENIZER, Preprocessing, recipe_of
from ....profiles.samples.registry import TEXT_SUFFIXES
from ....profiles.samples.states import values_advice
from ....profiles.samples.storage import data_files, is_url, shown_location
from ....profiles.samples.token_inputs import OF_TARGET, Role, usual_role
from ....profiles.samples.values import InputSpec, Original, Sample, Samples, with_leading_axes

# What a tokenizer makes of a text, as the arrays of the inputs that take it.

DECODED = 4
"""Default number of tokens of a text that go through a model with a state one by one."""

PAD_TOKENS = ("[PAD]", "<pad>", "<PAD>", "<|padding|>", "<|endoftext|>", "</s>")
"""Padding tokens to try, in this order, if tokenizer.json defines none."""


@dataclass(frozen=True)
class TextRecipe:
    """How a text becomes the inputs of a model.

    Attributes:
        tokenizer: path of a tokenizer.json, relative to the recipe; not needed if the model takes text
        inputs: for inputs without a usual name, NAME: ids, attention_mask, token_type_ids, position_ids,
            has_past or text; of the second text of a pair, for a decoder: target_ids, target_mask or next_ids
        field: NAME: key or column with the text; [FIRST, SECOND] for pairs
        pairs: tab (a tab separates the texts of a pair) or none (lines are texts)
        max_length: N from 1: maximum tokens of a text; else the limit of model or tokenizer
        padding: model (to the length that the model fixes, if it does), max_length or none
        pad_token: the token for padding; else that of the tokenizer
        decoder_start: the token that a decoder begins with; else that of config.json
        prompt: N from 1, with a state: tokens of a text to run first; else all except decode
        decode: N from 0, with a state: tokens after the prompt to run one by one; else 4
        answer: N from 0, with a state: tokens that the float model generates, instead of the text's
    """

    tokenizer: str = ""
    inputs: Mapping[str, Role] = of_field(default_factory=dict)
    field: str | tuple[str, str] = "text"
    pairs: Literal["tab", "none"] = "tab"
    max_length: Annotated[int, Meta(ge=1)] | None = None
    padding: Literal["model", "max_length", "none"] = "model"
    pad_token: str = ""
    decoder_start: str = ""
    prompt: Annotated[int, Meta(ge=1)] | None = None
    decode: Annotated[int, Meta(ge=0)] | None = None
    answer: Annotated[int, Meta(ge=0)] = 0
    constants: Constants = of_field(default_factory=dict)

    @property
    def decoded(self) -> int:
        """Tokens of a text that go through a model with a state one by one, after the prompt."""
        if self.decode is not None:
            return self.decode
        return 0 if self.answer else DECODED


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Makes samples of texts."""

    recipe: TextRecipe
    roles: Mapping[str, Role]
    specs: tuple[InputSpec, ...]
    constants: Mapping[str, npt.NDArray[Any]]
    tokenizer: Any  # None for models that take text itself
    findings: tuple[Finding, ...] = ()
    # token that a decoder begins with; None if no input takes the second text of a pair
    start: int | None = None

    def arrays(self, where: str, text: str, pair: str | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a text, or of a pair: each a batch of one if the input has two dimensions."""
        if self.tokenizer is None:
            if pair is not None:
                raise DataError(f"{where}: is a pair, but the model expects one text; set pairs: none")
            return self._input_arrays(where, {"text": np.array(text, object)})
        if self.start is None:
            values = _encoded(self.tokenizer, text, pair)
        else:
            answer = self._answer(self.start, where, pair)
            values = {**_encoded(self.tokenizer, text, None), **self._target(self.start, answer)}
        values |= {"text": np.array(text, object), "has_past": np.array(False)}
        return self._input_arrays(where, values)

    def _answer(self, start: int, where: str, text: str | None) -> npt.NDArray[np.int64]:
        """Return the tokens of an answer after the one that its decoder begins with."""
        if text is None:
            raise DataError(
                f"{where}: is one text, but the model needs two, for its encoder and its decoder; "
                "write TEXT<tab>ANSWER, or name two fields of a table, as field: [text, answer]"
            )
        encoded = _encoded(self.tokenizer, text, None)
        return np.append(start, encoded["ids"][encoded["attention_mask"] > 0])

    def _target(self, start: int, tokens: npt.NDArray[np.int64]) -> dict[Role, npt.NDArray[Any]]:
        """Return a decoder's inputs for an answer: all but its last token, which it is to predict.

        If a second decoder goes on, the first reads one half, the second the token after it.
        """
        end = len(tokens) // 2 if "next_ids" in self.roles.values() else max(1, len(tokens) - 1)
        specs = [spec for spec in self.specs if self.roles[spec.name] in ("target_ids", "target_mask")]
        size = _fixed_length(specs, self.roles) or end
        ids = np.full(size, start, np.int64)
        ids[: min(end, size)] = tokens[: min(end, size)]
        mask = (np.arange(size) < end).astype(np.int64)
        return {"target_ids": ids, "target_mask": mask, "next_ids": tokens[end : end + 1]}

    def original(self, text: str) -> Original:
        """Return a text as the original of the input that takes it."""
        takes = (name for name, role in self.roles.items() if role in ("ids", "text"))
        return Original(next(takes, ""), text)

    def steps(
        self, where: str, text: str, pair: str | None = None
    ) -> Iterator[tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64] | None]]:
        """Yield the arrays of each step of a text through a model with a state, and its next tokens.

        The prompt is one step, and each token after it: the text's, or those that the model answers.
        """
        recipe, encoded = self.recipe, _encoded(self.tokenizer, text, None)
        same: dict[Role, npt.NDArray[Any]] = {"text": np.array(text, object)}
        ids = encoded["ids"]
        takes: Role = "ids" if self.start is None else "target_ids"
        mask: Role = "attention_mask" if self.start is None else "target_mask"
        if self.start is not None:
            same |= encoded
            ids = self._answer(self.start, where, pair)
        elif pair is not None:
            encoded = _encoded(self.tokenizer, f"{text}\t{pair}", None)
            ids = encoded["ids"]
        types, count = encoded["token_type_ids"], len(ids)
        fixed = _fixed_length([spec for spec in self.specs if self.roles[spec.name] == takes], self.roles)
        prompt = fixed or recipe.prompt or max(1, count - recipe.decoded)
        tokens_each = fixed or 1
        if count < min(prompt, tokens_each):
            raise DataError(f"{where}: has {count} tokens, fewer than a step needs; remove it")

        def values(start: int, end: int) -> dict[Role, npt.NDArray[Any]]:
            """Return the values of a step without its tokens."""
            past: dict[Role, npt.NDArray[Any]] = {
                mask: np.ones(end, np.int64),
                "has_past": np.array(start > 0),
            }
            if self.start is None:
                zeros = np.zeros(end - start, np.int64)
                past["token_type_ids"] = types[start:end] if end <= count else zeros
                past["position_ids"] = np.arange(start, end)
            return {**same, **past}

        decoded_end = min(count, prompt + recipe.decoded)
        starts = [0, *range(min(prompt, count), decoded_end, tokens_each)]
        if fixed and recipe.prompt is None and recipe.decode is None:
            starts = list(range(0, count - fixed + 1, fixed))
        for number, start in enumerate(starts):
            end = min(count, prompt) if not number else start + tokens_each
            if end > count:
                break
            next_tokens = np.append(ids[start + 1 : end + 1], [-1] * (end - start))[: end - start]
            yield self._input_arrays(where, {**values(start, end), takes: ids[start:end]}), next_tokens
        for position in range(decoded_end, decoded_end + recipe.answer):
            yield self._input_arrays(where, values(position, position + 1)), None

    def _input_arrays(self, where: str, values: Mapping[Role, Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of the inputs that take one of these values, and of the constant ones."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        for spec in self.specs:
            role = self.roles[spec.name]
            if role in values:
                array: npt.NDArray[Any] = values[role]
                is_ids = role in ("ids", "target_ids", "next_ids")
                largest = int(array.max()) if is_ids and array.size else 0
                if spec.rows is not None and 1 < spec.rows <= largest:
                    raise DataError(
                        f"{where}: token '{self.tokenizer.id_to_token(largest)}' has id {largest}, and the "
                        f"model's embedding of '{spec.name}' has {spec.rows} rows; give the tokenizer.json "
                        "of this model"
                    )
                arrays[spec.name] = with_leading_axes(array.astype(spec.dtype), spec)
        return {**arrays, **self.constants}


def text_encoder(preprocessing: Preprocessing, inputs: Sequence[InputSpec]) -> TextEncoder:
    """Return an encoder that makes samples of texts, for a recipe, a `tokenizer.json` or neither."""
    is_recipe = preprocessing.kind == RECIPE
    recipe = recipe_of(preprocessing, TextRecipe) if is_recipe else TextRecipe()
    where, state = preprocessing.name or "--preprocess", preprocessing.state
    constants = constant_arrays(where, recipe.constants, inputs)
    specs = tuple(spec for spec in inputs if spec.name not in constants)
    roles = _roles(where, recipe, specs)
    if set(roles.values()) <= {"text"}:
        return TextEncoder(recipe, roles, specs, constants, None)
    path, tokenizer = _tokenizer(where, preprocessing, recipe)
    of_texts = [spec for spec in specs if roles[spec.name] not in OF_TARGET]
    fixed = None if state else _fixed_length(of_texts, roles)
    takes_target = len(of_texts) < len(specs)
    start = _decoder_start(where, path, tokenizer, recipe) if takes_target else None
    findings = _set_length(where, path, tokenizer, recipe, fixed, state=bool(state))
    read_ids = ("target_ids",) if takes_target else ("ids",)
    tokens = [name for name in state.values() if roles.get(name) in read_ids]
    if recipe.answer and not tokens:
        raise ConfigError(
            f"{where}: answer: which output has the scores of the next token is not known; name it under "
            f"state, as {{logits: {next((n for n, role in roles.items() if role in read_ids), 'input_ids')}}}"
        )
    carried = [(output, name) for output, name in state.items() if name not in tokens]
    if carried:
        output, name = carried[0]
        more = f" and {len(carried) - 1} more" if len(carried) > 1 else ""
        first = "tokens" if recipe.prompt is None else f"{recipe.prompt}"
        then = [f"{recipe.decoded} tokens of the text one by one"] if recipe.decoded else []
        then += [f"{recipe.answer} that the float model answers"] if recipe.answer else []
        sentence = (
            f"{path}: '{output}' goes to '{name}' from step to step{more}; of a text the first {first} are "
            f"run together, then {' and '.join(then) or 'nothing'}"
        )
        remedy = "override with prompt, decode and answer in a recipe"
        findings.append(Finding(Code.READING_ASSUMED, sentence, str(path), remedy=remedy))
    return TextEncoder(recipe, roles, specs, constants, tokenizer, tuple(findings), start)


def _decoder_start(where: str, path: Path, tokenizer: Any, recipe: TextRecipe) -> int:
    """Return the id of the token that a decoder begins with, from the recipe or a config.json."""
    key = "decoder_start_token_id"
    if recipe.decoder_start:
        found = tokenizer.token_to_id(recipe.decoder_start)
        if found is None:
            raise ConfigError(
                f"{where}: decoder_start: the tokenizer has no token '{recipe.decoder_start}'; name "
                "one that it has"
            )
        return int(found)
    for name in ("generation_config.json", "config.json"):
        token = settings_beside(path.parent / name).get(key)
        if type(token) is int and token >= 0:
            return token
    raise ConfigError(
        f"{where}: the decoder begins with a token that is not known; put the model's config.json, which has "
        f"{key}, beside {path.name}, or name the token in a recipe, as decoder_start: '<pad>'"
    )


def _roles(where: str, recipe: TextRecipe, specs: Sequence[InputSpec]) -> dict[str, Role]:
    """Return the role of each input: that of the recipe, or of its usual name, or of the only one."""
    checked_names(f"{where}: inputs", recipe.inputs, [spec.name for spec in specs])
    roles: dict[str, Role] = {}
    for spec in specs:
        only: Role | None = "ids" if len(specs) == 1 and spec.dtype.kind in "iu" else None
        usual: Role | None = "text" if spec.dtype.kind == "O" else usual_role(spec.name) or only
        role = recipe.inputs.get(spec.name) or usual
        if role is None:
            raise ConfigError(
                f"{where}: the contents of input '{spec.name}' ({spec}) are unknown; in a recipe with "
                f"reader: text name them, as inputs: {{{spec.name}: ids}} (attention_mask, token_type_ids, "
                f"position_ids), give its value, as {values_advice([spec])}, or, for a cache, its output of "
                "the previous step, as state: {OUTPUT: past.*}"
            )
        roles[spec.name] = role
    return roles


def _tokenizer(where: str, preprocessing: Preprocessing, recipe: TextRecipe) -> tuple[Path, Any]:
    """Return the path of the tokenizer.json, and the tokenizer that the library `tokenizers` makes of it."""
    if preprocessing.kind == TOKENIZER and preprocessing.path is not None:
        path = preprocessing.path
    elif recipe.tokenizer:
        folder = Path() if preprocessing.path is None else preprocessing.path.parent
        path = folder / recipe.tokenizer
    else:
        raise ConfigError(
            f"{where}: the model expects token ids; give its tokenizer with --preprocess tokenizer.json, or "
            "the key tokenizer of the recipe"
        )
    return path, _tokenizer_in(path)


def decoded(path: Path, ids: Sequence[int]) -> str:
    """Return the text of token ids, special tokens left out."""
    text: str = _tokenizer_in(path).decode([int(number) for number in ids if number >= 0])
    return text


def _tokenizer_in(path: Path) -> Any:
    tokenizers = library("tokenizers", str(path), "text")
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; give the tokenizer.json of the model (a recipe: from its own folder)"
        )
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{path}: is not a tokenizer of Hugging Face ({line}); give the tokenizer.json of the model"
        ) from error


def _fixed_length(specs: Sequence[InputSpec], roles: Mapping[str, Role]) -> int | None:
    """Return the number of tokens that the model takes, None for any."""
    ends = [spec.shape[-1] for spec in specs if spec.shape and roles[spec.name] != "text"]
    return next((size for size in ends if isinstance(size, int)), None)


def _set_length(
    where: str, path: Any, tokenizer: Any, recipe: TextRecipe, fixed: int | None, *, state: bool = False
) -> list[Finding]:
    """Set up cutting and padding, by default as the tokenizer's file says; return the assumptions made."""
    truncation, padding = tokenizer.truncation or {}, tokenizer.padding or {}
    findings = []

    def assume(sentence: str, remedy: str = "") -> None:
        sentence = f"{path}: {sentence}"
        findings.append(Finding(Code.READING_ASSUMED, sentence, str(path), remedy=remedy))

    if recipe.max_length is not None and fixed is not None and recipe.max_length > fixed:
        raise ConfigError(
            f"{where}: max_length: is {recipe.max_length}, but the model expects {fixed}; give no more"
        )
    length = recipe.max_length or min(filter(None, (fixed, truncation.get("max_length"))), default=None)
    tokenizer.no_truncation()
    if length is not None:
        settings = {key: truncation[key] for key in ("strategy", "direction") if key in truncation}
        tokenizer.enable_truncation(length, **settings)
        if recipe.max_length is None:
            source = "the model fixes" if length == fixed else "it says"
            assume(f"texts are cut at {length} tokens, as {source}", "max_length in a recipe cuts elsewhere")
    padded = {"model": fixed, "max_length": length, "none": None}[recipe.padding]
    if recipe.padding == "max_length" and padded is None:
        raise ConfigError(f"{where}: padding: max_length needs max_length; give it")
    tokenizer.no_padding()
    if padded is not None:
        named = recipe.pad_token or padding.get("pad_token", "")
        candidates = [named] if named else PAD_TOKENS
        token = next((t for t in candidates if tokenizer.token_to_id(t) is not None), None)
        if token is None:
            raise ConfigError(
                f"{where}: the model expects a fixed number of tokens, but the tokenizer has no token "
                f"{' or '.join(candidates)} to fill up with; name it in a recipe, as pad_token: '<pad>'"
            )
        direction = padding.get("direction", "right")
        tokenizer.enable_padding(
            direction=direction, pad_id=tokenizer.token_to_id(token), pad_token=token, length=padded,
            pad_type_id=padding.get("pad_type_id", 0),
        )  # fmt: skip
        assume(f"texts are padded to {padded} tokens with '{token}'")
    elif padding and fixed is None and recipe.padding == "model" and not state:
        assume("texts are not padded, because the model accepts any length", "padding: max_length does")
    return findings


def _encoded(tokenizer: Any, text: str, pair: str | None) -> dict[Role, npt.NDArray[Any]]:
    encoding = tokenizer.encode(text) if pair is None else tokenizer.encode(text, pair)
    mask = np.array(encoding.attention_mask, np.int64)
    return {
        "ids": np.array(encoding.ids, np.int64),
        "attention_mask": mask,
        "token_type_ids": np.array(encoding.type_ids, np.int64),
        # Counted from the first token that is none of the padding, which may be on the left.
        "position_ids": np.arange(len(mask)) if mask[:1].all() else np.maximum(mask.cumsum() - 1, 0),
    }


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the lines of a file, or of the files of a folder, each as a sample; empty ones are skipped."""
    if not preprocessing.reader and all(spec.dtype.kind != "O" for spec in inputs):
        needs = "token ids; give its tokenizer: --preprocess tokenizer.json"
        if inputs and all(spec.dtype.kind == "f" for spec in inputs):
            needs = f"'{inputs[0].name}' ({inputs[0]}); give a folder of pictures, sound or arrays"
        raise DataError(f"{shown_location(source)}: contains lines of text, but the model needs {needs}")
    encoder = text_encoder(preprocessing, inputs)
    files = data_files(source, TEXT_SUFFIXES)
    if not files:
        raise DataError(
            f"{shown_location(source)}: contains no lines of text; give {', '.join(TEXT_SUFFIXES)} files"
        )
    steps = bool(preprocessing.state)
    total = None if is_url(source) or steps else sum(1 for file in files for _ in file.lines())

    def every_step() -> Iterator[Sample]:
        for file in files:
            for number, line in file.lines():
                where = f"{file}: line {number}"
                texts = _texts(where, line, encoder)
                for step, (arrays, next_tokens) in enumerate(encoder.steps(where, *texts)):
                    name = f"{file.name}:{number}[{step}]"
                    original = encoder.original("\t".join(texts))
                    yield Sample(name, arrays, step=step, next_tokens=next_tokens, originals=(original,))

    def iterate(part: slice) -> Iterator[Sample]:
        if steps:
            yield from islice(every_step(), part.start, part.stop, part.step)
            return
        numbered = ((file, *line) for file in files for line in file.lines())
        for file, number, line in islice(numbered, part.start, part.stop, part.step):
            where = f"{file}: line {number}"
            texts = _texts(where, line, encoder)
            arrays = encoder.arrays(where, *texts)
            yield Sample(f"{file.name}:{number}", arrays, originals=(encoder.original("\t".join(texts)),))

    samples = Samples(shown_location(source), total, iterate, True, encoder.findings)
    return in_batches(samples, inputs) if has_batch(inputs) else samples


def _text(where: str, line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: is not UTF-8 text (byte 0x{line[error.start]:02x}); write the file as UTF-8"
        ) from None


def _texts(where: str, line: bytes, encoder: TextEncoder) -> list[str]:
    """Return the text of a line, or the two of a pair."""
    text = _text(where, line)
    texts = text.split("\t") if encoder.recipe.pairs == "tab" else [text]
    if len(texts) > 2:
        raise DataError(
            f"{where}: has {len(texts) - 1} tabs, but a pair has one between its texts; remove them, or set "
            "pairs: none in a recipe"
        )
    return texts
