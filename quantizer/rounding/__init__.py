"""Weight rounding other than to the nearest code: SQuant without data, GPTQ and GPTAQ with samples.

Enters: model, plan, samples.
Leaves: codes of weights.
Imports: plan, operators, model, numerics, profiles.instrumentation, profiles.runtime, profiles.samples,
profiles.readers, profiles.records, profiles.base.
"""
