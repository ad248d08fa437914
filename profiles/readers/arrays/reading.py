"""Samples from files of arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..checks import check_header, check_names, checked_arrays
from ..preprocessing import Preprocessing
from ..values import ArrayHeader, InputSpec, Sample, Samples
from .files import read_npy, read_npz
from .folders import read_data_set, sample_paths


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the samples of a folder of arrays, or of one file of them.

    Args:
        source: a folder of `.npz` files (one sample each, arrays named after the inputs), of `.npy` files
            (models with one input), of `input_*.pb` files as in the ONNX model zoo (one sample), or of
            `test_data_set_*` folders of those; or one `.npz` or `.npy` file.
        inputs: what a sample must hold.
        preprocessing: unused.

    Raises:
        DataError: there is no such folder, or it has no samples. While iterating: a file is broken or holds
            pickled objects, or does not fit the inputs.
    """
    specs = tuple(inputs)
    paths = sample_paths(Path(source))
    place = os.path.realpath(source)
    return Samples(source, len(paths), lambda part: (_read(path, specs) for path in paths[part]), place)


def _read(path: Path, specs: tuple[InputSpec, ...]) -> Sample:
    names = tuple(spec.name for spec in specs)

    def check(where: str, headers: Mapping[str, ArrayHeader]) -> None:
        check_names(where, headers, specs)
        for spec in specs:
            check_header(f"{where}: input '{spec.name}'", headers[spec.name], spec)

    if path.is_dir():
        arrays = read_data_set(path, names)
    elif path.suffix.lower() == ".npz":
        arrays = read_npz(path, check)
    else:
        arrays = read_npy(path, names, check)
    return Sample(path.name, checked_arrays(str(path), arrays, specs))
