"""The readers: how a source is recognised, and who reads it.

A reader is a module of this room with a record of its recipe and a function
`open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples`. Libraries are
imported inside of its functions. A new one is one entry of `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..base.errors import DataError, nearest_path
from . import arrays, audio, images, picture_files, random_samples, tables, text
from .preprocessing import Preprocessing
from .storage import entries_of, exists, holds, is_folder, shown_location
from .values import InputSpec, Samples


@dataclass(frozen=True)
class Reader:
    """One kind of source.

    Attributes:
        name: what messages call what it reads.
        recognises: whether a source is for it; looks at names alone.
        open: returns the samples of a source, for a model's inputs and a recipe.
        recipe: the record that its recipes are.
        takes: the words of the recipes that it can use (`reader: image`), its own first.
        suffixes: of its files in a folder of samples, in lower case.
    """

    name: str
    recognises: Callable[[str], bool]
    open: Callable[[str, Sequence[InputSpec], Preprocessing], Samples]
    recipe: type
    takes: tuple[str, ...]
    suffixes: tuple[str, ...] = ()


READERS: tuple[Reader, ...] = (
    Reader(
        "random values",
        random_samples.is_random,
        random_samples.open,
        random_samples.RandomRecipe,
        ("random",),
    ),
    Reader("arrays", arrays.holds_arrays, arrays.open, arrays.ArrayRecipe, ("array",)),
    Reader(
        "pictures",
        lambda source: picture_files.is_data_yaml(source) or holds(source, picture_files.SUFFIXES, deep=True),
        images.open,
        images.ImageRecipe,
        ("image",),
        picture_files.SUFFIXES,
    ),
    Reader(
        "lines of text",
        lambda source: holds(source, text.SUFFIXES),
        text.open,
        text.TextRecipe,
        ("text",),
        text.SUFFIXES,
    ),
    Reader(
        "rows",
        tables.is_table,
        tables.open,
        tables.TableRecipe,
        ("table", "text", "image", "audio"),
        tables.SUFFIXES,
    ),
    Reader(
        "recordings",
        lambda source: holds(source, audio.SUFFIXES, deep=True),
        audio.open,
        audio.AudioRecipe,
        ("audio",),
        audio.SUFFIXES,
    ),
    Reader("arrays", lambda source: True, arrays.open, arrays.ArrayRecipe, ("array",)),
)
"""The first that recognises a source, and takes the recipe where there is one, reads it."""


def open_source(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the samples of a folder or file, not yet checked against the inputs.

    Args:
        source: its name.
        inputs: what a sample must hold.
        preprocessing: how the data is prepared.

    Raises:
        DataError: there is no such source, or it holds no samples; a recipe is for another kind of data.
            While iterating: a sample is broken.
        ConfigError: the recipe is wrong, or a library is missing; the extra that installs it is named.
    """
    return reader_of(source, preprocessing).open(source, inputs, preprocessing)


def reader_of(source: str, preprocessing: Preprocessing) -> Reader:
    """Return who reads a source.

    Raises:
        DataError: a recipe is given that is for another kind of data, or there are no data.
    """
    recognising = [reader for reader in READERS if reader.recognises(source)]
    taking = [reader for reader in recognising if preprocessing.reader in reader.takes]
    reader = (taking or recognising)[0]
    if not preprocessing.reader or taking:
        return reader
    if recognising == [READERS[-1]]:
        advice = f"give a folder or file for --preprocess {preprocessing.name} ({preprocessing.reader})"
        if not exists(source):
            problem, advice = "no such folder or file", f"check the path.{nearest_path(source)}"
        elif not is_folder(source):
            problem = "is a file of no kind that is read"
        else:
            names = [name for name in entries_of(source) if name[:1] != "."]
            problem = f"holds '{min(names)}' but no samples" if names else "is empty"
        raise DataError(f"{shown_location(source)}: {problem}; {advice}")
    fitting = " or ".join(f"reader: {name}" for name in reader.takes)
    raise DataError(
        f"{source}: holds {reader.name}, and --preprocess {preprocessing.name} is for "
        f"{preprocessing.reader}; give a recipe with {fitting}, or other data"
    )


def is_sample_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is, or is part of, a sample."""
    endings = tuple(suffix for reader in READERS for suffix in reader.suffixes)
    return arrays.is_array_name(name) or name.lower().endswith(endings)
