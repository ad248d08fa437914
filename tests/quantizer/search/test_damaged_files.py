"""Labels with random damage: each is read, or refused with the file, the fault and what to do."""

import io
import random

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.quantizer.evaluation.metrics.truth import load_labels


def content(name: str) -> bytes:
    """Return a whole file: labels as an array, an archive or text."""
    stream = io.BytesIO()
    if name == "l.npy":
        np.save(stream, np.arange(10))
    elif name == "z.npy":
        np.savez(stream, np.arange(10))
    else:
        return "\n".join(map(str, range(10))).encode()
    return stream.getvalue()


def damaged(whole: bytes, draw: random.Random) -> bytes:
    data, at = bytearray(whole), draw.randrange(len(whole))
    match draw.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << draw.randrange(8)
        case 2:
            data[at:at] = draw.randbytes(draw.randrange(20))
        case 3:
            del data[at : at + draw.randrange(1, 30)]
        case _:
            data[at % 128 % len(data)] = draw.choice(b"()[]{}'\",:0123456789eE-+\0")
    return bytes(data)


@pytest.mark.parametrize("name", ["l.npy", "z.npy", "l.txt"])
def test_a_damaged_file_is_read_or_refused_with_what_to_do(tmp_path, name) -> None:
    whole, draw = content(name), random.Random(0)
    sentences: list[str] = []
    for _ in range(100):
        (tmp_path / name).write_bytes(damaged(whole, draw))
        try:
            load_labels(tmp_path / name).check_classes(10)
        except QprofError as error:
            sentences.append(str(error))
    assert len(sentences) > 30
    assert all(text.startswith(str(tmp_path / name)) and "; " in text for text in sentences)
