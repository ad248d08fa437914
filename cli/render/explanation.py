"""What `qprof explain` prints, as text and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .tables import plain_table

if TYPE_CHECKING:
    from ...quantizer.pipeline.explanation import Explanation, Member, Neighbour


def explanation_json(found: Explanation) -> str:
    """Return everything as one JSON object; a number that is not finite is null."""
    return json.dumps(_plain(asdict(found)), indent=2)


def explanation_text(found: Explanation) -> str:
    """Return the parameters, the nodes around the tensor, and the members of its group as a table."""
    lines = [f"tensor '{found.tensor}': {_params_text(found)}"]
    for neighbour in found.neighbours or ():
        lines.append(_neighbour_text(neighbour))
    if found.range is None:
        if found.params is not None:
            lines.append("it shares its parameters with no other tensor")
        return "\n".join(lines)
    lines.append(
        f"it shares its parameters with {len(found.members) - 1} other(s), tied by {', '.join(found.ties)}; "
        f"common range {_range_text(found.range)}"
    )
    measured = any(member.sqnr_db is not None for member in found.members)
    headers = ["tensor", "own range", "wins", "lost dB", *(["SQNR dB", "alone dB"] if measured else [])]
    rows = [_cells(member, measured) for member in found.members]
    lines.append(plain_table(headers, rows, right=("lost dB", "SQNR dB", "alone dB")))
    return "\n".join(lines)


def _params_text(found: Explanation) -> str:
    params = found.params
    if params is None:
        return "float"
    several = "" if len(params.scale) == 1 else f" and {len(params.scale) - 1} more along axis {params.axis}"
    low = (params.qtype.low - params.zero_point[0]) * params.scale[0]
    high = (params.qtype.high - params.zero_point[0]) * params.scale[0]
    covers = "" if several else f", covers {_range_text((low, high))}"
    noise = "" if found.sqnr_db is None else f", expected SQNR {_db(found.sqnr_db)} dB"
    return (
        f"{params.qtype.name}, scale {params.scale[0]:.6g}{several}, zero_point {params.zero_point[0]}"
        f"{covers}{noise}"
    )


def _neighbour_text(neighbour: Neighbour) -> str:
    verb = "made" if neighbour.makes else "read"
    reason = f": {neighbour.reason}" if neighbour.reason else ""
    return f"{verb} by '{neighbour.node}' ({neighbour.operator}), {neighbour.kind}{reason}"


def _cells(member: Member, measured: bool) -> list[str]:
    cells = [member.name, _range_text(member.own_range), "yes" if member.wins else "", _db(member.lost_db)]
    return [*cells, _db(member.sqnr_db), _db(member.own_sqnr_db)] if measured else cells


def _range_text(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.6g} .. {ends[1]:.6g}"


def _db(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
