from typing import Any

def search(
    weight: Any,
    shape: tuple[int, int, int],
    block: int,
    first: int,
    last: int,
    symmetric: bool,
    shrinks: Any,
    scale: Any,
    point: Any,
    level: int,
) -> tuple[float, float, bool]: ...
def pack(
    weight: Any,
    shape: tuple[int, int, int],
    block: int,
    first: int,
    last: int,
    offset: int,
    bits: int,
    scale: Any,
    point: Any,
    out: Any,
    pitch: int,
    level: int,
) -> bool: ...
def levels() -> tuple[str, ...]: ...
