"""Families of files that other tools write, and of joined models: in every format that is read."""

from __future__ import annotations

import json
import random
import struct

import onnx

from damage.cases import Base, Case, Content, Draw, whole
from damage.documents import json_value
from damage.text_damage import cut, damaged, flip, insert

RANGES = {
    "onnxruntime": "ranges.json",
    "onnxruntime-table": "table.cache",
    "onnxruntime-flatbuffers": "table.flatbuffers",
    "tensorrt-cache": "tensorrt.cache",
}
"""Format -> the file of the base."""
PARAMETERS = {
    "aimet-1.0": "aimet10.encodings",
    "aimet-2.0": "aimet20.encodings",
    "qnn": "qnn.json",
    "tensor-quant-overrides": "overrides.json",
}

NUMBERS = (
    *(0, 1, -1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 10**9, 10**18, 10**400, -(10**400), 2**31, 2**63),
    *(0.0, -0.0, 0.5, -0.5, 1e-320, 1e-45, 1e-38, 1e38, 1e39, 1e308, -1e308, 1e-5),
    *("", "nan", "inf", "1e999", "8", "True", "int8", "FLOAT", "PER_BLOCK", "LPBQ", "QInt4", "x"),
    *(None, True, False, [], {}, [1], [[1.0]], [1.0] * 4, [0.1, 0.1], [[0.1] * 4] * 3),
)
SETTINGS = (
    *("bitwidth", "bw", "is_symmetric", "is_sym", "offset", "scale", "min", "max", "axis", "block_size"),
    *("enc_type", "output_dtype", "y_scale", "y_zero_point", "quant_type", "zero_point", "rmin", "rmax"),
    *("symmetric", "reduce_range", "convert", "compressed_bw", "per_block_int_scale", "dtype", "version"),
    *("per_channel_float_scale", "hist", "bins", "lowest", "highest", "CLS", "data", "zero_point_shift"),
)
"""Keys that some format has."""
BITS = (
    "7fc00000",
    "7f800000",
    "ff800000",
    "bf800000",
    "00000001",
    "00800000",
    "7f7fffff",
    "0",
    "zz",
    "123456789",
)
"""Of float32: NaN, infinities, -1, the smallest and the largest numbers, and none at all."""


def ranges(base: Base, draw: Draw) -> Case:
    """Ranges of other tools: imported, or quantized with."""
    name = draw.pick(tuple(RANGES.values()))
    what, content = _damaged(base.bytes(name), draw)
    case, names = f"{name}: {what}", (name,)
    if draw.rng.random() < 0.5:
        command = ("import", name, "--model", "model.onnx", "-o", "out.yaml")
        return Case("foreign ranges", case, command, {name: content}, names=names, outputs=("out.yaml",))
    command = ("quantize", "model.onnx", "--profile", name, "-o", "out.onnx")
    outputs = ("out.onnx",)
    return Case("foreign ranges", case, command, {name: content}, names=names, outputs=outputs, check="loads")


def parameters(base: Base, draw: Draw) -> Case:
    """Scales and zero points of other tools, as a plan."""
    name = draw.pick(tuple(PARAMETERS.values()))
    what, content = _damaged(base.bytes(name), draw)
    target = draw.rng.choice(((), ("--target", "onnx"), ("--target", "openvino"), ("--form", "integer")))
    command = ("import", name, "--model", "model.onnx", "-o", "out.yaml", *target)
    return Case(
        "foreign parameters",
        f"{name}: {what}",
        command,
        {name: content},
        names=(name,),
        outputs=("out.yaml",),
        check="applies",
    )


def joined(base: Base, draw: Draw) -> Case:
    """The record of a joined model, which says what files are written."""
    model = onnx.load_model_from_string(base.bytes("joined.onnx"))
    entry = next(entry for entry in model.metadata_props if entry.key == "qprof.parts")
    record = json.loads(entry.value)
    part, word = draw.rng.choice(record), draw.pick(NAMES)
    match draw.number % 4:
        case 0:
            what, part["name"] = f"a part is {word!r}", word
        case 1:
            port = draw.rng.choice([*part["inputs"].values(), *part["outputs"].values()])
            what, port["name"] = f"an input or output is {word!r}", word
        case 2:
            ports = draw.rng.choice([part["inputs"], part["outputs"]])
            what, ports[word] = f"one more is {word!r}", dict(next(iter(ports.values())))
        case _:
            what, content = json_value(entry.value.encode(), draw.rng)
            record = json.loads(content[0][0])
    entry.value = json.dumps(record)
    return Case(
        "joined models",
        what,
        ("split", "joined.onnx", "joined.yaml", "-o", "parts"),
        {"joined.onnx": whole(model.SerializeToString(deterministic=True))},
        names=("joined.onnx", "part ", "joined.yaml", "parts/"),
        outputs=("parts", *(f"parts/{part['name']}.int8.onnx" for part in record if _is_plain(part))),
    )


def _is_plain(part: object) -> bool:
    """Whether a part may have its name, which becomes that of a file."""
    name = part.get("name") if isinstance(part, dict) else None
    return (
        isinstance(name, str)
        and name.isprintable()
        and name not in ("", ".", "..")
        and not set(name) & set(":=/\\")
    )


NAMES = (
    *("", ".", "..", "../first", "../../first", "/tmp/first", "a/b", "first", "second", "first:c", "x", "y"),
    *("\x00", "\n", "\x1b[31m", "a" * 300, "ä", "CON", "%s", "first\\second", "~"),
)


def _damaged(data: bytes, draw: Draw) -> tuple[str, Content]:
    """Return what was done to a file: as to any text or JSON, or to a number that is one of its format."""
    rng = draw.rng
    if data.startswith(b"TRT-") and draw.number % 2:
        lines = data.decode().splitlines()
        at = rng.randrange(1, len(lines))
        name, bits = lines[at].rpartition(": ")[0], rng.choice(BITS)
        lines.insert(at, f"{name}: {bits}") if rng.random() < 0.2 else lines.__setitem__(
            at, f"{name}: {bits}"
        )
        return f"a scale is {bits}", whole("\n".join(lines) + "\n")
    if data.startswith(b"{"):
        match draw.number % 3:
            case 0:
                return json_value(data, rng)
            case 1:
                return _setting(data, rng)
    elif b"\0" in data and draw.number % 3 == 0:
        what, kind = rng.choice((("one bit", flip), ("cut off", cut), ("a few bytes too many", insert)))
        return what, kind(data, rng)
    elif b"\0" in data:
        at, number = rng.randrange(len(data) - 4), rng.choice((0, 1, -1, 4, 255, 2**31 - 1, -(2**31), -8, 64))
        return f"{number} at byte {at}", whole(data[:at] + struct.pack("<i", number) + data[at + 4 :])
    return damaged(data, rng, draw.number)


def _setting(data: bytes, rng: random.Random) -> tuple[str, Content]:
    """Return a JSON text in which a setting of a tensor is another number, or there is one more."""
    document = json.loads(data)
    entries = list(_mappings(document))
    entry = rng.choice(entries)
    known = [key for key in entry if key in SETTINGS]
    key = rng.choice(known if known and rng.random() < 0.7 else SETTINGS)
    value = rng.choice(NUMBERS)
    old = entry.get(key)
    entry[key] = [value] * len(old) if isinstance(old, list) and rng.random() < 0.5 else value
    return f"{key} is {str(value)[:40]}", whole(json.dumps(document))


def _mappings(value: object) -> list[dict]:  # type: ignore[type-arg]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict) else []
    return [*own, *(found for item in inner for found in _mappings(item))]
