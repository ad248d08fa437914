"""The readers: one entry each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reader:
    """A program that reads ONNX.

    Attributes:
        title: what it is, for people.
        packages: what pip installs into its environment; none where the environment of qprof is taken.
        version: distribution whose version is told.
        loader: module in `loaders/`.
        node: packages that npm installs.
        note: what to know of its column, in a sentence.
    """

    title: str
    packages: tuple[str, ...]
    version: str
    loader: str
    node: tuple[str, ...] = ()
    note: str = ""


READERS: Mapping[str, Reader] = {
    "onnxruntime": Reader("onnxruntime, processor", (), "onnxruntime", "onnxruntime_cpu"),
    "onnxruntime-web": Reader(
        "onnxruntime in WebAssembly, in Node", (), "", "onnxruntime_web", ("onnxruntime-web",)
    ),
    "onnxruntime-node": Reader("onnxruntime in Node", (), "", "onnxruntime_node", ("onnxruntime-node",)),
    "openvino": Reader("OpenVINO, processor", (), "openvino", "openvino_cpu"),
    "tract": Reader("tract", ("tract", "numpy"), "tract", "tract_rust"),
    "tvm": Reader("TVM, Relax importer", ("apache-tvm", "onnx", "numpy"), "apache-tvm", "tvm_relax"),
    "iree": Reader(
        "IREE, with torch-mlir's importer",
        ("iree-base-compiler[onnx]", "iree-base-runtime", "numpy"),
        "iree-base-compiler",
        "iree_cpu",
    ),
    "emx-onnx-cgen": Reader("emmtrix ONNX to C", ("emx-onnx-cgen",), "emx-onnx-cgen", "emx_c"),
    "tinygrad": Reader("tinygrad", ("tinygrad", "onnx", "numpy"), "tinygrad", "tinygrad_cpu"),
    "mnn": Reader("MNN", ("MNN", "onnx", "numpy"), "MNN", "mnn_cpu"),
    "opencv": Reader(
        "OpenCV dnn", ("opencv-python-headless", "numpy"), "opencv-python-headless", "opencv_dnn"
    ),
    "litert": Reader(
        "LiteRT (TFLite), by onnx2tf",
        ("onnx2tf==1.29.*", "tensorflow", "tf_keras", "ai-edge-litert", "onnx", "onnx_graphsurgeon"),
        "onnx2tf",
        "litert_cpu",
    ),
    "ncnn": Reader("ncnn, by pnnx", ("ncnn", "pnnx", "numpy"), "ncnn", "ncnn_cpu"),
    "wonnx": Reader("wonnx (WebGPU)", ("wonnx", "numpy"), "wonnx", "wonnx_gpu"),
    "onnx2torch": Reader(
        "onnx2torch", ("torch", "torchvision", "onnx2torch"), "onnx2torch", "onnx2torch_cpu"
    ),
    "jaxonnxruntime": Reader(
        "jaxonnxruntime",
        ("jaxonnxruntime", "onnx", "absl-py", "flax", "transformers"),
        "jaxonnxruntime",
        "jax_cpu",
    ),
}
"""Every reader, by the name of its environment."""
