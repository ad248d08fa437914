"""Models of several files: joined into one that is profiled and planned, its plan written as files again.

Enters: ONNX files that read one another's outputs, files of functions; a plan of the joined model.
Leaves: one ONNX file that names its parts; a quantized file for each part.
Imports: pipeline, lowering, planning, equalization, plan, prepare, runtime, model,
profiles.instrumentation, profiles.base.
"""
