"""Print the table of tuned constants from the calls of `tuned` in the source.

python tests/quantizer/numerics/tuned_page.py > quantizer/TUNED.md
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3] / "quantizer"
NARROW = 1.2
"""Factor below which a range says that the mechanism hangs on its constant."""

HEAD = """\
# Tuned constants

Printed by `python tests/quantizer/numerics/tuned_page.py > quantizer/TUNED.md`. These values were chosen by
what models did with them; each stands in its module as a call of `tuned`. *Holds* is the range in which no
plan changes of six trained models of five kinds (digits, a classifier of bytes, poses, corners, a
segmentation, a vocoder; `tests/benchmarks/ablate.py --constants`): of the values tried, which are 20 % below
and 25 % above, those that changed none. **Narrow** is a range without one of the two. Constants that none of
the six comes by are not known.

"""


def page() -> str:
    """Return the page."""
    rows = [
        "| constant | value | meaning | figure that chose it | chosen on | holds |",
        "|---|--:|---|---|---|---|",
    ]
    for file in sorted(ROOT.rglob("*.py")):
        rows += _rows(file)
    return HEAD + "\n".join(rows) + "\n"


def _rows(file: Path) -> Iterator[str]:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for line, behind in zip(body, [*body[1:], None], strict=True):
        call = line.value if isinstance(line, ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "tuned":
            continue
        assert isinstance(line, ast.Assign)
        (name,) = (target.id for target in line.targets if isinstance(target, ast.Name))
        said = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        meaning = ""
        if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            meaning = " ".join(str(behind.value.value).split("\n\n")[0].split())
        place = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        value = ast.unparse(call.args[0])
        cells = (f"`{place}.{name}`", value, meaning, said["figure"], said["chosen_on"])
        yield f"| {' | '.join(cells)} | {_range(eval(value), said.get('holds'))} |"


def _range(value: object, holds: tuple[float, float] | None) -> str:
    if holds is None:
        return "not known"
    low, high = holds
    narrow = isinstance(value, (int, float)) and (low * NARROW > value or high < value * NARROW)
    return f"{low:g} to {high:g}{', **narrow**' if narrow else ''}"


if __name__ == "__main__":
    print(page(), end="")
