from typing import Any

def advance(
    x: Any,
    type: str,
    start: int,
    minimum: float,
    maximum: float,
    exponent: int,
    first: int,
    counts: Any,
    level: int,
) -> tuple[int, int, float, float, int, int]: ...
def levels() -> tuple[str, ...]: ...
