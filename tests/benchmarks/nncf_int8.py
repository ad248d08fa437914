"""NNCF's native int8 of an OpenVINO model as one command, with its defaults.

python nncf_int8.py MODEL.onnx --data DIR -o OUT.xml [--transformer]

It needs nncf, openvino and numpy alone: they may be in an environment of their own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nncf
import numpy as np
import openvino as ov


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--transformer", action="store_true", help="say that the model is a transformer")
    given = parser.parse_args()
    feeds = []
    for file in sorted(given.data.glob("*.npz")):
        with np.load(file, allow_pickle=False) as arrays:
            feeds.append({name: arrays[name] for name in arrays.files})
    quantized = nncf.quantize(
        ov.Core().read_model(given.model),
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if given.transformer else None,
    )
    ov.save_model(quantized, given.output, compress_to_fp16=False)


if __name__ == "__main__":
    main()
