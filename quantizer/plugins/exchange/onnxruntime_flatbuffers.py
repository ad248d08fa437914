"""onnxruntime's calibration table as calibration.flatbuffers, which its TensorRT execution provider reads.

The number of a tensor is its largest magnitude. The classes that write it come with onnxruntime.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....profiles.records.profile import Profile


def written_limits(profile: Profile) -> dict[str, str]:
    """Return the largest magnitudes of tensors that are not always 0, in onnxruntime's digits, by name."""
    largest = {name: max(abs(tensor.minimum), abs(tensor.maximum)) for name, tensor in profile.items()}
    limits = {name: float(np.float32(limit)) for name, limit in largest.items()}
    return {name: str(limits[name]) for name in sorted(limits) if limits[name] > 0.0}


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
