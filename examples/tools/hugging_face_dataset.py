"""A data set of Hugging Face as samples: `python examples/tools/hugging_face_dataset.py`.

Needs datasets, pillow and scikit-learn. The Parquet files of a data set on the hub
(`hf://datasets/...`) are also read by --data, without any code; `to_parquet` writes those of any other.
"""

from pathlib import Path

import numpy as np
import qprof_onnx as qprof
from datasets import Dataset
from PIL import Image
from sklearn.datasets import load_digits

MODEL = Path(__file__).parents[1] / "digits" / "model.onnx"

images, classes = load_digits(return_X_y=True)
rows = Dataset.from_dict(
    {
        "picture": [Image.fromarray((image * 15).astype(np.uint8).reshape(8, 8)) for image in images[:512]],
        "label": classes[:512],
    }
)


def preprocess(row: dict) -> np.ndarray:
    """Return what the model takes: 1 channel, 0 to 1."""
    return np.asarray(row["picture"], np.float32)[None] / 240.0


result = qprof.quantize(MODEL, rows, transform=preprocess, output="dataset.int8.onnx", labels=rows["label"])
print(result.verdict)
