"""Word and character error rates of texts: of CTC outputs, of token numbers and of strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError, DataError, ModelError
from ...evaluation.metrics.metric import Figures, Floats, Metric, MetricSource, Outputs, of_sums
from ...evaluation.metrics.table import NamedMetric
from ...evaluation.metrics.truth import Place
from .truth_files import read_text


def word_error_rate(source: MetricSource) -> Metric:
    """Return the edits (words) over the words of the truth, in percent."""
    return _metric(source, str.split)


def character_error_rate(source: MetricSource) -> Metric:
    """Return the edits (characters) over the characters of the truth, in percent."""
    return _metric(source, list)


@dataclass(frozen=True)
class Reader:
    """How an output becomes texts."""

    output: str
    tokens: tuple[str, ...] = ()  # text of each class; () for an output of strings
    blank: int = 0
    time_first: bool = False  # [time, rows, classes]
    end: int | None = None  # token that ends an output of token numbers

    def texts(self, outputs: Outputs) -> list[str]:
        """Return the text of each row."""
        values = outputs[self.output]
        if values.dtype.kind in "OUS":
            return [str(text) for text in values.reshape(-1)]
        if values.dtype.kind in "iu":
            texts = []
            for row in values.reshape(-1, values.shape[-1]):
                stops = [] if self.end is None else np.flatnonzero(row == self.end).tolist()
                ids = row[: stops[0]] if stops else row
                known = (i for i in ids if 0 <= i < len(self.tokens) and i != self.blank)
                texts.append(_joined([self.tokens[i] for i in known]))
            return texts
        steps = values[None] if values.ndim == 2 else values
        steps = np.moveaxis(steps, 1, 0) if self.time_first else steps
        return [greedy_text(row, self.tokens, self.blank) for row in steps]


def greedy_text(scores: npt.NDArray[Any], tokens: Sequence[str], blank: int) -> str:
    """Return the text of CTC scores [time, classes] by best path decoding (Graves et al., 2006)."""
    best = np.argmax(scores, axis=1)
    starts = np.flatnonzero(np.diff(best, prepend=-1) != 0)
    return _joined([tokens[c] for c in best[starts] if c != blank and c < len(tokens)])


def _joined(parts: Sequence[str]) -> str:
    """Return the text of tokens; U+2581 begins a word in the vocabularies of SentencePiece."""
    return "".join(parts).replace("\u2581", " ").strip("\n")


def _metric(source: MetricSource, units: Callable[[str], list[str]]) -> Metric:
    from rapidfuzz.distance import Levenshtein

    reader, assumed = _reader(source)
    lines = None if source.truth is None else read_text(source.truth).removesuffix("\n").split("\n")
    metric = source.metric

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        float_texts = reader.texts(floats)
        if lines is None:
            return float_texts, 0
        return lines[place.row : place.row + len(float_texts)], len(float_texts)

    def units_of(text: str) -> list[str]:
        text = text.replace(" ", "") if metric.options["spaces"] == "ignore" else text
        return units(text.lower() if metric.options["case"] == "ignore" else text)

    def scored(true_texts: Sequence[str], outputs: Outputs) -> Floats:
        """Return the edits and the length of the truth of each row."""
        texts = reader.texts(outputs)
        texts = texts if len(texts) >= len(true_texts) else [""] * len(true_texts)
        rows = []
        for true, text in zip(true_texts, texts[: len(true_texts)], strict=True):
            a, b = units_of(true), units_of(text)
            rows.append((float(Levenshtein.distance(a, b)), float(len(a))))
        return np.array(rows, np.float64).reshape(-1, 2)

    def figures(kept: Sequence[Floats]) -> Figures:
        return of_sums(
            np.concatenate(list(kept)), lambda sums: 100.0 * sums[:, 0] / np.maximum(1.0, sums[:, 1])
        )

    def finish(rows: int, cut: bool) -> None:
        if lines is not None and (rows > len(lines) or (rows < len(lines) and not cut)):
            raise DataError(
                f"{source.truth}: {len(lines)} lines, but the samples have {rows} rows; give one line for "
                "each"
            )

    return Metric(
        *source.called,
        f"{metric.title} of output '{reader.output}'",
        reading=repr(reader),
        reads=reader.output,
        truth=truth,
        scored=scored,
        figures=figures,
        finish=finish,
        assumed=assumed,
        words=reader.texts,
    )


def _reader(source: MetricSource) -> tuple[Reader, tuple[str, ...]]:
    """Return how the output becomes texts, and the assumptions made."""
    output, metric = source.output_name, source.metric
    values = source.first_outputs[output]
    if values.dtype.kind in "OUS":
        return Reader(output), ()
    end = None if metric.options["end"] is None else int(metric.options["end"])
    if values.dtype.kind in "iu" and values.ndim:
        return Reader(output, _charset(source, None)[0], int(metric.options["blank"] or 0), end=end), ()
    if values.ndim not in (2, 3):
        raise ModelError(
            f"output '{output}': shape {list(values.shape)} is not a text [rows, time, classes]; choose "
            "another with --scored-output"
        )
    time_first = metric.options["layout"] == "tbc"
    if metric.options["layout"] is None:
        time_first = values.ndim == 3 and values.shape[1] == 1 < values.shape[0]
    tokens, how = _charset(source, values.shape[-1])
    blank = _blank(metric, values.shape[-1])
    order = "[time, rows, classes]" if time_first else "[rows, time, classes]"
    note = f"{metric.kind.name}: output '{output}' is {order}, class {blank} is the blank, {how}"
    return Reader(output, tokens, blank, time_first, end), (note,)


def _blank(metric: NamedMetric, classes: int) -> int:
    """Return the class that is the blank of CTC; option -1 is the last."""
    return classes - 1 if metric.options["blank"] == -1 else int(metric.options["blank"] or 0)


def _charset(source: MetricSource, classes: int | None) -> tuple[tuple[str, ...], str]:
    """Return the text of each class, and its source; a short list lacks the blank, and a space at the end."""
    file, metric = source.metric.options["charset"], source.metric
    if file is not None:
        where, text = str(file), read_text(str(file)).removesuffix("\n")
    elif "character" in source.model.metadata_props:
        where, text = "the model's metadata", source.model.metadata_props["character"].removesuffix("\n")
    else:
        raise ConfigError(
            f"metric '{metric.text}': needs the text of each class, a file with one a line; give it as in "
            f"{metric.kind.name}:charset=tokens.txt"
        )
    tokens = text.replace("\r\n", "\n").split("\n")
    how = f"{len(tokens)} texts from {where}"
    if classes is None or len(tokens) == classes:
        return tuple(tokens), how
    blank = _blank(metric, classes)
    if len(tokens) == classes - 2:
        tokens, how = [*tokens, " "], f"{how} and a space"
    if len(tokens) != classes - 1:
        raise DataError(
            f"{where}: {len(tokens)} texts for {classes} classes of output '{source.output_name}'; give "
            "one a line"
        )
    return (*tokens[:blank], "", *tokens[blank:]), how
