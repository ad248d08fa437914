"""The functions of the package: what `import qprof_onnx` and each command call.

Enters: models, profiles, plans and samples, as paths or objects.
Leaves: files, and results that show themselves.
"""
