"""`python -m qprof_onnx`: the command line."""

from .cli.entry import run

run()
