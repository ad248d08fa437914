"""A DataLoader of PyTorch as samples: `python examples/tools/torch_loader.py`.

Needs torch and scikit-learn.
"""

from pathlib import Path

import qprof_onnx as qprof
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

MODEL = Path(__file__).parents[1] / "digits" / "model.onnx"

images, classes = load_digits(return_X_y=True)
pictures = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
loader = DataLoader(TensorDataset(pictures[:512], torch.tensor(classes[:512])), batch_size=16)

result = qprof.quantize(
    MODEL, loader, transform=lambda batch: batch[0], output="loader.int8.onnx", labels=classes[:512]
)
print(result.verdict)
