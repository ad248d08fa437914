"""The errors of qprof: one root, one child for each kind of thing that a user can repair.

Every message has the form "place: problem; remedy". Library code raises; only the command line prints and
exits, with the `exit_code` of the class.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import count

_MAX_CHARACTERS = 1000
"""Of a message."""

_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_ALL, _ALL_BUT_LINES = re.compile(f"[{_CONTROLS}]"), re.compile(f"(?!\n)[{_CONTROLS}]")


def escaped(text: str, lines: bool = False) -> str:
    r"""Return a text with control characters, and bytes that are not UTF-8, escaped as in "\x1b"."""
    return (_ALL_BUT_LINES if lines else _ALL).sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if "\udc80" <= character <= "\udcff":  # how Python keeps a byte of a name that is not UTF-8
        character = chr(ord(character) - 0xDC00)
    return character.encode("unicode_escape").decode()


def shown(text: str, most: int = _MAX_CHARACTERS) -> str:
    """Return a text on one line that a terminal can show; one longer than `most` loses its middle."""
    line = escaped(text)
    return line if len(line) <= most else f"{line[: most * 65 // 100]} ... {line[-most * 34 // 100 :]}"


IN_COMMAND = ContextVar("in command", default=False)
"""Whether a command runs; messages then name its options, else the arguments of Python."""

_OPTION = re.compile(
    r"qprof [a-z-]+(?: -[-a-zA-Z. ]+)?|--set (?P<setting>[a-z_]+=[\w.=-]*\w)|(?<![^\s('])--"
    r"(?P<name>[a-z-]+[a-z])(?: [A-Z][\w.:=]*\b|[ =](?P<word>(?!out\b|it\b|too\b)[a-z0-9][\w.:=-]*\w)"
    r"(?=$|[,;)]| or | and | \())?"
)
_OTHER_NAMES = {
    **dict.fromkeys(("by-row", "held-out", "allow-duplicates"), "{}=True"),
    **{"as": "config=", "no-latency": "latency=False", "custom-ops": "load_custom_operators"},
    "check-speed": "speed=SpeedCheckOptions()",
}


def in_python(text: str) -> str:
    """Return a message with arguments of Python in place of options: `data=` for "--data DIR"."""

    def argument(match: re.Match[str]) -> str:
        if match["name"] is None:
            return match["setting"] or match[0]
        form = _OTHER_NAMES.get(match["name"], "{}" if text[match.end() :][:1] == ":" else "{}=")
        name = form.format(match["name"].replace("-", "_"))
        return f"{name}'{match['word']}'" if match["word"] else name

    return _OPTION.sub(argument, text)


class QprofError(Exception):
    """Root of every error that a user can repair. The command line exits with `exit_code`."""

    exit_code: int = 2

    def __str__(self) -> str:
        """Return the message as `shown` makes it, with control characters in names escaped."""
        return shown(super().__str__())


class ConfigError(QprofError):
    """An option, a configuration file or a name in it is wrong."""


class WritingError(ConfigError):
    """A file cannot be written: a fault of the disk or of the path, never of the content."""


class ModelError(QprofError):
    """The ONNX model cannot be read, is invalid, or cannot be run."""


class ProfileError(QprofError):
    """A profile cannot be read, or belongs to another model."""


class DataError(QprofError):
    """A sample does not fit the model, or calibration data is missing or unusable."""


class PlanError(QprofError):
    """A plan cannot be read, or breaks a rule that `verify_plan` holds."""


class MalformedError(ValueError):
    """A document or a setting is malformed; the caller, who knows the file, makes an error above of it."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice

    def message(self, file: object, advice: str) -> str:
        """Return the whole message: file, fault, remedy (`advice` unless it has its own)."""
        return f"{file}: {self}; {self.advice or advice}"


def not_one_of(where: str, word: str, known: Iterable[str]) -> MalformedError:
    """Return the error about a word that is not one of `known`."""
    words = tuple(known)
    colon = ":" if where.endswith("'") else ""
    return MalformedError(
        f"{where}{colon} '{word}' is not one of {', '.join(words)}",
        did_you_mean(word, words) or "use one of these",
    )


def unknown_key(where: str, key: str, known: Iterable[str]) -> MalformedError:
    """Return the error about a key that is not one of `known`."""
    words = tuple(known)
    advice = did_you_mean(key, words) or f"known keys are {', '.join(words)}"
    return MalformedError(f"{where}: unknown key '{key}'" if where else f"unknown key '{key}'", advice)


NEAR = 0.66
"""Likeness from which on a known word may be meant; that of `split` and "inspect" is lower."""


OF_OTHER_TOOLS: Mapping[str, str] = {
    "holdout_labels": "--labels, which belong to --holdout-data",
    **{"entropy": "kl", "int4": "weight-only-4", "int2": "weight-only-2", "f2": "f1"},
    **dict.fromkeys(("nodes_to_exclude", "ignored_scope"), "--keep-float NAME of a node or operator type"),
    **dict.fromkeys(("op_types_to_quantize", "nodes_to_quantize"), "--keep-float NAME of each other one"),
    "per_channel": "--set granularity=per-channel, the default if the target supports it",
    "reduce_range": "not needed, weights for onnxruntime-x86 and openvino cannot saturate",
    "calibrate_method": "--calibrator minmax, kl or percentile:99.999",
    "extra_options": "a setting for each, see docs/migration.md",
    "quant_format": "--form qdq or qoperator",
    "preset": "--schema symmetric-uint8 or asymmetric",
    "subset_size": "--limit N",
    **dict.fromkeys(("target_device", "device"), "--target NAME of a runtime, see qprof targets"),
    "imgsz": "--preprocess yolo:SIZE, as yolo:640",
    **dict.fromkeys(("half", "fp16"), "--set float_type=float16 for the nodes that stay float"),
    **dict.fromkeys(("calibration_data", "calibration_dataset", "calib"), "--data DIR"),
}
"""Words of other tools, and former ones, with qprof's."""


def same_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word with the same letters and digits, as uint8 for "QuantType.QUInt8"; or None."""
    plain = _plain(word.rpartition(".")[2])
    return next((name for name in known if plain and _plain(name) in (plain, plain.removeprefix("q"))), None)


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def nearest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the closest name; "" for none."""
    known = {word.lower(): word for word in names}
    same = same_word(name, known) or OF_OTHER_TOOLS.get(name.lower())
    close = [same] if same in known else difflib.get_close_matches(name.lower(), known, n=1, cutoff=NEAR)
    return f" Did you mean '{known[close[0]]}'?" if close else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return what `nearest` asks, as a clause: "did you mean 'x'?"."""
    return nearest(name, names)[1:].replace("Did", "did", 1)


def nearest_option(name: str, names: Iterable[str]) -> str:
    """Return " In qprof: ..." for an option of another tool, else what `nearest` does."""
    word = same_word(name, OF_OTHER_TOOLS)
    return f" In qprof: {OF_OTHER_TOOLS[word]}." if word else nearest(name, names)


def nearest_path(path: str) -> str:
    """Return " Did you mean 'x'?" for a near name, " There is no folder 'y'." for a missing folder, or ""."""
    folder, name = os.path.split(path.rstrip("/"))
    missing = ""
    if "://" in path:
        return ""
    while folder and not os.path.lexists(folder):
        missing, folder = folder, os.path.dirname(folder)
    if missing:
        return f" There is no folder '{missing}'."
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return ""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7) or [
        other for other in sorted(names) if len(name) > 2 and other.startswith(name)
    ]
    return f" Did you mean '{os.path.join(folder, close[0])}'?" if close else ""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes: compiled modules turn an interruption into an ImportError."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, is that of a system that refuses memory or threads."""
    words = ("can't start new thread", "failed to map segment", "annot allocate memory", "bad_alloc")
    return any(isinstance(e, MemoryError) or any(word in str(e) for word in words) for e in causes(error))


def is_internal(error: BaseException) -> bool:
    """Return whether an error is a fault of qprof: not of the input, files or memory, nor an interruption."""
    if isinstance(error, QprofError | OSError) or is_out_of_memory(error):
        return False
    return all(isinstance(one, Exception) for one in causes(error))


# Names: the next free one, and the order in which people count them.

NaturalKey = tuple[list[tuple[int, str]], str]


def free_name(name: str, taken: Container[str], numbered: Callable[[int], str] | None = None) -> str:
    """Return `name` if it is free, else the first free one of "name_1", "name_2" or its `numbered` forms."""
    if name not in taken:
        return name
    form = numbered or (lambda number: f"{name}_{number}")
    return next(candidate for candidate in map(form, count(1)) if candidate not in taken)


def natural_key(name: str) -> NaturalKey:
    """Return a sort key that puts "2" before "10"."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)], name
