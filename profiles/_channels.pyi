from typing import Any

def gather(
    x: Any,
    type: str,
    groups: int,
    inner: int,
    lanes: int,
    start: int,
    stop: int,
    ranges: Any,
    sums: Any,
    level: int,
) -> None: ...
def levels() -> tuple[str, ...]: ...
