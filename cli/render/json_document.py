"""Results as JSON documents that say what they are: the first key is `format: qprof-NAME/VERSION`.

A renderer calls `document("evaluation", 1, result)`; the record of the result goes into the table of
`schemas/schema.py`, which gives the document its JSON Schema.
"""

from __future__ import annotations

import json
from typing import Any

from ...profiles.base.json_values import to_jsonable


def document(name: str, version: int, result: object, **more: Any) -> str:
    """Return a result as one JSON object.

    Args:
        name: of the document, as in `qprof schema NAME`.
        version: raised when a key changes its meaning or goes; a new key does not raise it.
        result: a dataclass, or a mapping; see `plain` for what its values may be. Infinities become the
            strings "inf" and "-inf".
        more: keys besides the fields of the result, such as `passed`.

    Raises:
        TypeError: the result is neither, or holds what JSON cannot.
    """
    fields = to_jsonable(result)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(result).__name__} is no record")
    return json.dumps(
        {"format": format_of(name, version), **fields, **to_jsonable(more)}, indent=2, allow_nan=False
    )


def format_of(name: str, version: int) -> str:
    """Return what the key `format` of a document says."""
    return f"qprof-{name}/{version}"
