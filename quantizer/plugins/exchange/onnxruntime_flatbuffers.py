"""onnxruntime's calibration table as calibration.flatbuffers, which its TensorRT execution provider reads.

The classes that read and write it come with onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ....profiles.base.errors import MalformedError
from ....profiles.records.profile import Profile
from .foreign import ForeignRanges, unique
from .onnxruntime_cache import ADVICE, number_at, ranges_of, written_limits


def recognises(data: bytes) -> bool:
    """Return whether a file is a table of names and numbers."""
    root = int.from_bytes(data[:4], "little")
    if b"\0" not in data or not 8 <= root < len(data):  # most files are none, and this is quickly seen
        return False
    try:
        return bool(list(_entries(data)))
    except MalformedError:
        return False


def read(data: bytes, where: str) -> ForeignRanges:
    """Return the symmetric ranges of a table."""
    return ranges_of(unique(_entries(data)))


def _entries(data: bytes) -> Iterator[tuple[str, float]]:
    from onnxruntime.quantization.CalTableFlatBuffers.TrtTable import TrtTable

    try:
        table = TrtTable.GetRootAs(data)
        places = range(min(table.DictLength(), len(data)))  # a length that cannot be runs into the end
        entries = (table.Dict(at) for at in places)
        pairs = list(_within(((entry.Key(), entry.Value()) for entry in entries), len(data)))
        texts = [(key.decode("utf-8"), value.decode("utf-8")) for key, value in pairs]
    except Exception:  # the library checks nothing: any error of reading bytes may come out of it
        raise MalformedError("is damaged: it is not a whole table", ADVICE) from None
    for name, value in texts:
        yield name, number_at(value, f"tensor '{name}'")


def _within(pairs: Iterator[tuple[bytes, bytes]], size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and numbers while they are no longer than the file: entries may point at one text."""
    for pair in pairs:
        size -= sum(map(len, pair))
        if size < 0:
            raise MalformedError("is damaged: its entries overlap", ADVICE)
        yield pair


def write(profile: Profile, model: ir.Model) -> bytes:
    """Return a table with the largest magnitude of each tensor, as onnxruntime writes it."""
    import flatbuffers
    from onnxruntime.quantization.CalTableFlatBuffers import KeyValue, TrtTable

    builder = flatbuffers.Builder(1024)
    entries = []
    for name, limit in written_limits(profile).items():
        key, value = builder.CreateString(name), builder.CreateString(limit)
        KeyValue.KeyValueStart(builder)
        KeyValue.KeyValueAddKey(builder, key)
        KeyValue.KeyValueAddValue(builder, value)
        entries.append(KeyValue.KeyValueEnd(builder))
    TrtTable.TrtTableStartDictVector(builder, len(entries))
    for entry in entries:
        builder.PrependUOffsetTRelative(entry)
    vector = builder.EndVector()
    TrtTable.TrtTableStart(builder)
    TrtTable.TrtTableAddDict(builder, vector)
    builder.Finish(TrtTable.TrtTableEnd(builder))
    return bytes(builder.Output())
