"""Other programs that read ONNX, on what qprof writes: `table` has them, `cases` the files, `running` runs.

A reader is one module in `loaders/` and one entry of `table.READERS`. A loader is run by `worker.py` in an
environment of its own, so that packages which exclude each other can be compared.
"""
