"""onnxruntime's calibration table as calibration.flatbuffers, which its TensorRT execution provider reads.

The classes that write it come with onnxruntime.
"""

from __future__ import annotations

import onnx_ir as ir

from ....profiles.records.profile import Profile
from .onnxruntime_cache import written_limits


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
