"""The functions of the package, behind `import qprof_onnx` and the commands.

Enters: models, profiles, plans and samples, as paths or objects.
Leaves: files, and results that show themselves.
"""
