"""The benchmarks: each module has one stage, which run.py finds by its name."""
