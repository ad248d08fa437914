"""The readers: how a source is recognised, and who reads it.

A reader is a module of this room with a function
`open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples`. Libraries are
imported inside of its functions. A new one is one entry of `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from ..base.errors import DataError, nearest_path
from .arrays import ArrayRecipe, holds_arrays, is_array_name
from .audio import SUFFIXES as RECORDINGS
from .audio import AudioRecipe
from .images import ImageRecipe
from .picture_files import SUFFIXES as PICTURES
from .picture_files import is_data_yaml
from .preprocessing import Preprocessing
from .random_samples import RandomRecipe, is_random
from .storage import entries_of, exists, holds, is_folder, shown_location
from .tables import SUFFIXES as ROWS
from .tables import TableRecipe, is_table
from .text import SUFFIXES as LINES
from .text import TextRecipe
from .values import InputSpec, Samples


@dataclass(frozen=True)
class Reader:
    """One kind of source.

    Attributes:
        name: what messages call what it reads.
        recognises: whether a source is for it; looks at names alone.
        module: of this room, with the function `open`.
        recipe: the record that its recipes are.
        takes: the words of the recipes that it can use (`reader: image`), its own first.
        suffixes: of its files in a folder of samples, in lower case.
    """

    name: str
    recognises: Callable[[str], bool]
    module: str
    recipe: type
    takes: tuple[str, ...]
    suffixes: tuple[str, ...] = ()


READERS: tuple[Reader, ...] = (
    Reader("random values", is_random, "random_samples", RandomRecipe, ("random",)),
    Reader("arrays", holds_arrays, "arrays", ArrayRecipe, ("array",)),
    Reader(
        "pictures",
        lambda source: is_data_yaml(source) or holds(source, PICTURES, deep=True),
        "images",
        ImageRecipe,
        ("image",),
        suffixes=PICTURES,
    ),
    Reader("lines of text", partial(holds, suffixes=LINES), "text", TextRecipe, ("text",), suffixes=LINES),
    Reader("rows", is_table, "tables", TableRecipe, ("table", "text", "image", "audio"), suffixes=ROWS),
    Reader(
        "recordings",
        partial(holds, suffixes=RECORDINGS, deep=True),
        "audio",
        AudioRecipe,
        ("audio",),
        suffixes=RECORDINGS,
    ),
    Reader("arrays", lambda source: True, "arrays", ArrayRecipe, ("array",)),
)
"""The first that recognises a source, and takes the recipe where there is one, reads it."""


def reader_of(source: str, preprocessing: Preprocessing) -> Reader:
    """Return who reads a source.

    Raises:
        DataError: a recipe is given that is for another kind of data, or there are no data.
    """
    fitting_source = [reader for reader in READERS if reader.recognises(source)]
    taking = [reader for reader in fitting_source if preprocessing.reader in reader.takes]
    reader = (taking or fitting_source)[0]
    if preprocessing.reader and not taking:
        if fitting_source == [READERS[-1]]:
            problem = _nothing_in(source)
            advice = f"give a folder or file for --preprocess {preprocessing.name} ({preprocessing.reader})"
            if problem == NOWHERE:
                advice = f"check the path.{nearest_path(source)}"
            raise DataError(f"{shown_location(source)}: {problem}; {advice}")
        fitting = " or ".join(f"reader: {name}" for name in reader.takes)
        advice = f"give a recipe with {fitting}" if fitting else "leave --preprocess out"
        raise DataError(
            f"{source}: holds {reader.name}, and --preprocess {preprocessing.name} is for "
            f"{preprocessing.reader}; {advice}, or other data"
        )
    return reader


NOWHERE = "no such folder or file"


def _nothing_in(source: str) -> str:
    """Return why a source that no reader recognises gives no samples."""
    if not exists(source):
        return NOWHERE
    if not is_folder(source):
        return "is a file of no kind that is read"
    names = [name for name in entries_of(source) if name[:1] != "."]
    return f"holds '{min(names)}' but no samples" if names else "is empty"


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
    reader = reader_of(source, preprocessing)
    module = import_module(f".{reader.module}", __package__)
    opened: Callable[[str, Sequence[InputSpec], Preprocessing], Samples] = module.open
    return opened(source, inputs, preprocessing)


def is_sample_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is, or is part of, a sample."""
    endings = tuple(suffix for reader in READERS for suffix in reader.suffixes)
    return is_array_name(name) or name.lower().endswith(endings)
