"""NNCF's native int8 of an OpenVINO model as one command, with its defaults.

python nncf_int8.py MODEL.onnx --data DIR -o OUT.xml [--transformer]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nncf
import openvino as ov
from record import read_feeds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--transformer", action="store_true", help="say that the model is a transformer")
    given = parser.parse_args()
    feeds = list(read_feeds(given.data))
    quantized = nncf.quantize(
        ov.Core().read_model(given.model),
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if given.transformer else None,
    )
    ov.save_model(quantized, given.output, compress_to_fp16=False)


if __name__ == "__main__":
    main()
