"""Families of ONNX files: damaged bytes, and each field of the message with values that it must not have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from damage.cases import Base, Case, Draw, whole

MODELS = ("model.onnx", "control.onnx", "outside.onnx", "int8.onnx")
MARK = "QQmarkQQ"
"""Stands in messages for a text that is no UTF-8, which Python's protobuf does not take."""

INTEGERS = (0, 1, -1, 2, 5, 71, 99, 2**31 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))
SMALL = (0, 1, -1, 2, 6, 9, 10, 11, 16, 99, 2**31 - 1, -(2**31))
TEXTS = (
    "",
    MARK,
    "x",
    "y",
    "w",
    "Conv",
    "If",
    "N",
    "\n",
    "\x1b[31m",
    "../x",
    "/dev/zero",
    "a" * 10_000,
    "'\"{}%s",
    "abc",
    "-5",
)
"""Some of them are names in the models."""
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38)


def _case(family: str, what: str, name: str, data: bytes, draw: Draw) -> Case:
    """Return a case with one of the commands that read models."""
    rng = draw.rng
    case = Case(
        family,
        f"{name}: {what}",
        (),
        {name: whole(data)},
        names=(name, "cal", ".npz", name.replace(".onnx", ".bin")),
    )
    if name == "int8.onnx":
        command = rng.choice(
            (
                ("evaluate", "model.onnx", name, "--data", "cal", "--no-latency", "--json"),
                ("compare-layers", "model.onnx", name, "--data", "cal"),
            )
        )
        return replace(case, command=command)
    match rng.randrange(5):
        case 0 | 1:
            return replace(
                case,
                command=("dump-profile", name, "--data", "cal", "-o", "out.yaml"),
                outputs=("out.yaml",),
                check="ranges_of_outputs",
            )
        case 2:
            return replace(case, command=("instrument", name, "-o", "out.onnx"), outputs=("out.onnx",))
        case 3 if name == "model.onnx":
            # The profile's fingerprint is that of the undamaged model: a refusal may name the profile.
            command = ("quantize", name, "--profile", "profile.yaml", "-o", "out.onnx")
            return replace(
                case,
                command=command,
                outputs=("out.onnx",),
                names=(*case.names, "profile.yaml"),
                check="close_outputs",
            )
    return replace(
        case,
        command=("quantize", name, "--as", "weight-only-8", "-o", "out.onnx"),
        outputs=("out.onnx",),
        check="close_outputs",
    )


def model_bytes(base: Base, draw: Draw) -> Case:
    """Bits, bytes, holes, ends."""
    name, rng = MODELS[draw.number % len(MODELS)], draw.rng
    if name == "outside.onnx" and rng.random() < 0.3:
        return replace(
            _case("ONNX, bytes", "weights beside it", name, base.bytes(name), draw),
            files={"outside.bin": whole(_damaged(base.bytes("outside.bin"), rng)[1])},
        )
    what, data = _damaged(base.bytes(name), rng)
    return _case("ONNX, bytes", what, name, data, draw)


def _damaged(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    at = rng.randrange(len(data))
    size = rng.choice((1, 4, 64))
    kinds = (
        ("one bit", data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]),
        (
            "one byte",
            data[:at] + bytes([rng.choice((0, 0xFF, 0x7F, 0x80, rng.randrange(256)))]) + data[at + 1 :],
        ),
        ("cut off", data[:at]),
        ("bytes missing", data[:at] + data[at + size :]),
        ("bytes doubled", data[: at + size] + data[at:]),
        ("zeros", data[:at] + bytes(size) + data[at + size :]),
        ("random bytes", data[:at] + rng.randbytes(size) + data[at + size :]),
        ("twice", data + data),
    )
    return rng.choice((*kinds[:2] * 4, *kinds))


def model_structure(base: Base, draw: Draw) -> Case:
    """Each field of the message: gone, doubled, empty, or with values that it must not have."""
    sites = _sites(tuple((name, base.bytes(name)) for name in MODELS))
    name, site = draw.pick(sites)
    model = onnx.ModelProto.FromString(base.bytes(name))
    message: Any = model
    for step in site[:-1]:
        message = getattr(message, step) if isinstance(step, str) else message[step]
    what = _edit(message, message.DESCRIPTOR.fields_by_name[site[-1]], draw.rng)
    data = model.SerializeToString().replace(MARK.encode(), b"\xff" * len(MARK))
    return _case("ONNX, structure", f"{'.'.join(map(str, site))}: {what}", name, data, draw)


Site = tuple[str, tuple[str | int, ...]]


@lru_cache
def _sites(models: tuple[tuple[str, bytes], ...]) -> list[Site]:
    """Return every field of the models, and where it says so the fields that are not set."""
    return [(name, site) for name, data in models for site in _fields(onnx.ModelProto.FromString(data), ())]


def _fields(message: Message, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    for field in message.DESCRIPTOR.fields:
        yield (*path, field.name)
        if field.message_type is None:
            continue
        if field.is_repeated:
            for index, item in enumerate(getattr(message, field.name)):
                yield from _fields(item, (*path, field.name, index))
        elif message.HasField(field.name):
            yield from _fields(getattr(message, field.name), (*path, field.name))


def _edit(message: Any, field: FieldDescriptor, rng: random.Random) -> str:
    """Change one field of a message and return what was done."""
    if not field.is_repeated:
        if message.HasField(field.name) and rng.random() < 0.25:
            message.ClearField(field.name)
            return "cleared"
        if field.message_type is not None:
            getattr(message, field.name).SetInParent()
            return "empty"
        value = _value(field, getattr(message, field.name), rng)
        setattr(message, field.name, value)
        return f"set to {str(value)[:30]!r}"
    items = getattr(message, field.name)
    kind = rng.randrange(5)
    if items and kind == 0:
        del items[rng.randrange(len(items))]
        return "one missing"
    if items and kind == 1:
        items.extend(list(items)[: rng.randrange(1, len(items) + 1)])
        return "some twice"
    if items and kind == 2:
        message.ClearField(field.name)
        return "all missing"
    if field.message_type is not None:
        if len(items) > 1 and kind == 3:
            items[0].CopyFrom(items[-1])
            return "the first is the last"
        items.add()
        return "one empty more"
    if items and kind == 3:
        items[rng.randrange(len(items))] = _value(field, items[0], rng)
        return "another value"
    count = rng.choice((1, 1, 2, 70))
    items.extend([_value(field, None, rng) for _ in range(count)])
    return f"{count} more"


def _value(field: FieldDescriptor, old: Any, rng: random.Random) -> Any:
    kinds = FieldDescriptor
    if field.cpp_type == kinds.CPPTYPE_STRING:
        if field.type == kinds.TYPE_BYTES:
            data: bytes = old or b"abcd"
            return rng.choice(
                (b"", data[:-1], data + data, data + b"x", b"\xff" * 8, data[: len(data) // 2], b"\0" * 1000)
            )
        return rng.choice(TEXTS)
    if field.cpp_type == kinds.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    if field.cpp_type in (kinds.CPPTYPE_FLOAT, kinds.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.cpp_type == kinds.CPPTYPE_INT32:
        return rng.choice(SMALL)
    values = (
        [value for value in INTEGERS if value >= 0] if field.cpp_type == kinds.CPPTYPE_UINT64 else INTEGERS
    )
    return rng.choice(values)


def odd_models(base: Base, draw: Draw) -> Case:
    """Models built to be odd: functions that call one another, deep subgraphs, huge constants, links."""
    from damage.odd_models import ODD, with_external

    what, files, links = draw.pick([*ODD(), *with_external(base.bytes("outside.onnx"))])
    name = "odd.onnx"
    case = _case("ONNX, structure", what, name, files[name], draw)
    return replace(
        case,
        files={path: whole(data) for path, data in files.items()},
        links=links,
        names=(*case.names, "outside.bin"),
    )
