"""The functions of `import qprof_onnx`: objects or paths in, objects out, settings as keywords.

Enters: models, samples, profiles and plans, each a path or an object; keywords.
Leaves: results that show and save themselves.
Imports: report, one_shot, parts, pipeline, tuning, scoring, evaluation, speed, exchange, plan, prepare,
targets, metrics, runtime, model, numerics, profiles.runner, profiles.runtime, profiles.samples,
profiles.readers, profiles.records, profiles.base.
"""
