"""Write the keywords of settings for type checkers and editors, from the fields of `QuantConfig`.

    python tests/quantizer/api/setting_keywords.py > quantizer/api/setting_keywords.py

A type checker takes keywords from a TypedDict alone, and no TypedDict from a dataclass.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from qprof_onnx.quantizer.numerics.calibrators import CALIBRATORS
from qprof_onnx.quantizer.targets.config import QuantConfig

HEAD = '''\
"""The settings as keywords, for type checkers and editors: printed from `QuantConfig` (CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """Settings of a quantization, see `QuantConfig`; what is not given comes from the target."""

'''


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
    lines = []
    for name, kind in hints.items():
        if name == "target":  # a parameter of its own, which may be a file or a recipe
            continue
        line = f"    {name}: {written(kind)}"
        if len(line) > 110:
            words = "".join(f'        "{word}",\n' for word in get_args(kind))
            line = f"    {name}: Literal[\n{words}    ]"
        lines.append(line)
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(module(), end="")
