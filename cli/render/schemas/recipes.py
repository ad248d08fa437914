"""Records of the recipes of preprocessing that people write, one for each reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

from ....profiles.samples.arrays import ArrayRecipe
from ....profiles.samples.audio import AudioRecipe
from ....profiles.samples.image_recipes import ImageRecipe
from ....profiles.samples.preprocessing import BUILT_IN
from ....profiles.samples.random_samples import RandomRecipe
from ....profiles.samples.tables import TableRecipe
from ....profiles.samples.text import TextRecipe

RECIPES: Mapping[str, type] = {
    "image": ImageRecipe,
    "array": ArrayRecipe,
    "text": TextRecipe,
    "audio": AudioRecipe,
    "table": TableRecipe,
    "random": RandomRecipe,
}
"""Reader -> what its recipes hold. A new reader with a recipe is one entry here."""
_ONE_OF: Any = Literal
"""Type checkers do not take words that are computed."""


def _document(reader: str, record: type) -> Any:
    """Return the record of a file: the keys of the recipe, its reader, and the built-in recipe below it."""
    hints = get_type_hints(record, include_extras=True)
    names = tuple(name for name, recipe in BUILT_IN.items() if recipe["reader"] == reader)
    told = Annotated[_ONE_OF[(reader,)], Meta(description=f"{reader}: what it is for")]
    head: list[Any] = [("reader", told, field(default=reader))] if names else [("reader", told)]
    below = Meta(description="a built-in recipe, whose keys hold where the file has none")
    base = [("base", Annotated[_ONE_OF[names] | None, below], field(default=None))] if names else []
    body = [(entry.name, hints[entry.name], _default(entry)) for entry in fields(record)]
    about = (record.__doc__ or "").partition("\n")[0]
    return make_dataclass(f"{reader.capitalize()}Recipe", [*head, *base, *body], namespace={"__doc__": about})


def _default(entry: Field[Any]) -> Any:
    """Return what gives a key the default of a field."""
    if entry.default_factory is not MISSING:
        return field(default_factory=entry.default_factory)
    return field(default=entry.default)


RecipeDocument = reduce(or_, (_document(reader, record) for reader, record in RECIPES.items()))
"""A recipe file, for any reader."""
