"""The record of a configuration file."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, get_type_hints

from msgspec import Meta

from ....quantizer.targets.config import QuantConfig
from ....quantizer.targets.loading import IDENTITY
from ....quantizer.targets.target import Target, Verified

_HINTS = get_type_hints(Target, include_extras=True)
Runtime = make_dataclass(
    "Runtime",
    [
        (entry.name, _HINTS[entry.name], field(default=entry.default, default_factory=entry.default_factory))
        for entry in fields(Target)
        if entry.name not in IDENTITY
    ],
    namespace={"__doc__": "Facts about a runtime."},
    frozen=True,
)
"""The fields of `Target` that a file has under `runtime`."""


@dataclass(frozen=True)
class ConfigDocument:
    """A configuration file: a target, or settings for one."""

    target: Annotated[
        str, Meta(description="Name; of a packaged target when base and runtime are left out.")
    ] = ""
    base: Annotated[str, Meta(description="A packaged target: what is not given here is taken from it.")] = ""
    description: Annotated[str, Meta(description="One line for people.")] = ""
    sources: Annotated[tuple[str, ...], Meta(description="Where the facts were read or measured.")] = ()
    verified: Annotated[
        Verified | None, Meta(description="Whether models were run there, on what, and when.")
    ] = None
    runtime: Runtime | None = None  # type: ignore[valid-type]
    settings: QuantConfig | None = None
