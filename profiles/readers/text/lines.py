"""Samples from lines of text: `.txt` files, one text a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from ...base.errors import DataError
from ...storage.files import DataFile, data_files, is_url, place_of, shown_location
from ..batches import has_batch, in_batches
from ..preprocessing import Preprocessing
from ..values import InputSpec, Sample, Samples
from .tokens import TextEncoder, text_encoder

SUFFIXES = (".txt",)


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the lines of a file, or of the files of a folder, each as a sample; empty ones are passed over.

    Args:
        source: a `.txt` file, a folder of these, or its URL.
        inputs: what a sample must hold.
        preprocessing: a recipe with `reader: text`, or a `tokenizer.json`.

    Raises:
        DataError: there are no such files. While iterating: a line is not UTF-8, or has more than one tab.
        ConfigError: the recipe or the tokenizer is wrong, or the library is missing.
    """
    if not preprocessing.reader and all(spec.dtype.kind != "O" for spec in inputs):
        raise DataError(
            f"{shown_location(source)}: holds lines of text, and the model takes token ids; give its "
            "tokenizer: --preprocess tokenizer.json"
        )
    encoder = text_encoder(preprocessing, inputs)
    files = data_files(source, SUFFIXES)
    if not files:
        raise DataError(f"{shown_location(source)}: holds no lines of text; give {', '.join(SUFFIXES)} files")
    total = None if is_url(source) else sum(1 for file in files for _ in _lines(file))

    def iterate(part: slice) -> Iterator[Sample]:
        numbered = ((file, *line) for file in files for line in _lines(file))
        for file, number, line in islice(numbered, part.start, part.stop, part.step):
            where = f"{file}: line {number}"
            yield Sample(f"{file.name}:{number}", encoder.arrays(where, *_texts(where, line, encoder)))

    samples = Samples(shown_location(source), total, iterate, place_of(source), encoder.notes)
    return in_batches(samples, inputs) if has_batch(inputs) else samples


def _lines(file: DataFile) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers from 1."""
    with file.open() as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _texts(where: str, line: bytes, encoder: TextEncoder) -> list[str]:
    """Return the text of a line, or the two of a pair."""
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: is not UTF-8 text (byte 0x{line[error.start]:02x}); write the file as UTF-8"
        ) from None
    texts = text.split("\t") if encoder.recipe.pairs == "tab" else [text]
    if len(texts) > 2:
        raise DataError(
            f"{where}: has {len(texts) - 1} tabs, where one parts the texts of a pair; remove them, or set "
            "pairs: none in a recipe"
        )
    return texts
