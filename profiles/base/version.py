"""The version of this program, from the metadata of what is installed."""

from importlib.metadata import version

__version__ = version("qprof-onnx")
