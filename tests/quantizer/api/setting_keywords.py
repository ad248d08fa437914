"""Write the keywords of settings, and names of tables, for type checkers and editors.

    python tests/quantizer/api/setting_keywords.py > quantizer/api/setting_keywords.py

The keywords are the fields of `QuantConfig`: a type checker takes keywords from a TypedDict alone, and no
TypedDict from a dataclass. The names are the keys of the tables: it takes no Literal from a mapping.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from qprof_onnx.quantizer.evaluation.metrics.table import KINDS
from qprof_onnx.quantizer.numerics.calibrators import CALIBRATORS
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.forms import FORMS

HEAD = '''\
"""The settings as keywords, and names of tables, for type checkers: printed from both (CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypedDict

{names}


class Settings(TypedDict, total=False):
    """Settings of a quantization, see `QuantConfig`; what is not given comes from the target."""

'''


NAMES = {
    "SchemaName": tuple(SCHEMAS),
    "FormName": tuple(FORMS),
    "MetricName": tuple(
        kind.name.replace("K", str(number)) for kind in KINDS for number in kind.usual_numbers or (0,)
    ),
}
"""Names that annotations of parameters have, with their words."""


def written(kind: Any) -> str:
    """Return a type as it is written; where settings hold a tuple of texts, keywords take any collection."""
    if get_origin(kind) is Literal:
        words = ", ".join(f'"{word}"' for word in get_args(kind))
        return f"Literal[{words}]"
    if get_origin(kind) is UnionType:
        return " | ".join(map(written, get_args(kind)))
    if kind == tuple[str, ...]:
        return "Collection[str]"
    return "None" if kind is NoneType else str(kind.__name__)


def module() -> str:
    """Return the text of the module."""
    hints = get_type_hints(QuantConfig)
    with_parameter = tuple(
        f"{name}:{value:g}" for name, c in CALIBRATORS.items() if c.parameter for value in c.parameter.usual
    )
    hints["calibrator"] = Literal[(*CALIBRATORS, *with_parameter)]
    del hints["target"]  # a parameter of its own, which may be a file or a recipe
    lines = [in_lines(f"    {name}: ", kind) for name, kind in hints.items()]
    names = [in_lines(f"{name} = ", Literal[words]) for name, words in NAMES.items()]
    return HEAD.format(names="\n".join(names)) + "\n".join(lines) + "\n"


def in_lines(start: str, kind: Any) -> str:
    """Return a type after its name, in a line or a line for each word, as ruff format has it."""
    line = f"{start}{written(kind)}"
    if len(line) <= 110:
        return line
    indent = " " * (len(start) - len(start.lstrip()))
    words = "".join(f'{indent}    "{word}",\n' for word in get_args(kind))
    return f"{start}Literal[\n{words}{indent}]"


if __name__ == "__main__":
    print(module(), end="")
