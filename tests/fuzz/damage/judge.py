"""What is right about the end of a command: the rules for messages, results and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from damage.cases import Case

OUTCOMES = ("done", "refused", "gate", "executed", "crash", "hang", "died", "wrong", "unclear", "leftover")
"""The columns of the table; those from "executed" on are findings."""
FINDINGS = OUTCOMES[3:]

PAYLOAD = "owned"
"""The file that code in pickles, YAML tags and headers of arrays would make."""
LONGEST = 1200
NO_MEMORY = "gives this process no more memory"
"""What is said where the limit of the process is met, wherever that happens: it names no file."""
ADVICE = re.compile(r";\s+\S+.{3,}|\?$|^error: No such option", re.DOTALL)
EXCEPTION = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception|Warning|Interrupt)|BadZipFile|StopIteration)\b")
PYTHON = ("Traceback", "<class", "object at 0x", "pybind", "allow_pickle", "NoneType", "__init__", "PyArray")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u2028\u2029]")
LINES = re.compile(r"^(error: |note: |warning: |doubt: |ALARM: |FAILED: |NOT PROVEN: )")
DIGITS = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Ending:
    """How a command ended; `changed` are files that it may not leave, remove or change."""

    code: int
    stdout: str
    stderr: str
    changed: tuple[str, ...]


def judged(case: Case, ending: Ending, fault: str) -> tuple[str, str]:
    """Return the outcome of a case, and why it must not be; `fault` is that of its result, "" for none."""
    if any(Path(name).name == PAYLOAD for name in ending.changed):
        return "executed", f"exit {ending.code}: the payload of the file was run: {PAYLOAD} exists"
    if ending.code not in (0, 1, 2):
        return "crash", last_line(ending.stderr)
    if ending.changed:
        return "leftover", f"exit {ending.code}: {', '.join(ending.changed)}"
    if ending.code == 2:
        wrong = unclear(case, ending.stderr)
        if case.wants == "done":
            return "wrong", f"refused, though it is right: {last_line(ending.stderr)}"
        return ("unclear", wrong) if wrong else ("refused", "")
    if case.wants == "refused":
        return "wrong", f"exit {ending.code}, though it had to be refused"
    if fault:
        return "wrong", fault
    if odd := noise(ending.stderr, exact=False):
        return "unclear", f"stderr: {odd!r}"
    return ("done" if ending.code == 0 else "gate"), ""


def unclear(case: Case, stderr: str) -> str:
    """Return what is unclear about a refusal, "" where nothing is."""
    if odd := noise(stderr, exact=True):
        return f"stderr: {odd!r}"
    message = [line for line in stderr.splitlines() if line.startswith("error: ")][-1]
    if not ADVICE.search(message):
        return f"no advice: {message!r}"
    if case.names and NO_MEMORY not in message and not any(name in message for name in case.names):
        return f"does not name {' or '.join(case.names)}: {message!r}"
    if len(message) > LONGEST:
        return f"{len(message)} characters: {message[:300]!r}"
    if CONTROL.search(message):
        return f"control characters: {message!r}"
    if not case.quotes and (EXCEPTION.search(message) or any(word in message for word in PYTHON)):
        return f"Python's words: {message!r}"
    return ""


def noise(stderr: str, exact: bool) -> str:
    """Return what is printed besides messages, "" for nothing; `exact` for one error at the end."""
    for line in stderr.splitlines():
        if line and not LINES.match(line) and not re.match(r"\S+ing:? ", line):
            return line[:300]
    if exact and not any(line.startswith("error: ") for line in stderr.splitlines()):
        return stderr[:300] or "nothing is printed"
    return ""


def last_line(text: str) -> str:
    """Return the last line that is not empty, shortened."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


Listing = Mapping[str, tuple[int, int, str]]


def listing(*folders: Path) -> Listing:
    """Return what is in folders, by path: kind, size and content."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            kind = path.lstat()
            if path.is_symlink() or not path.is_file():
                found[f"{folder.name}/{path.relative_to(folder)}"] = (kind.st_mode, 0, "")
                continue
            data = path.read_bytes() if kind.st_size < 1 << 20 else b""
            digest = f"{hash(data)}"
            found[f"{folder.name}/{path.relative_to(folder)}"] = (kind.st_mode, kind.st_size, digest)
    return found
