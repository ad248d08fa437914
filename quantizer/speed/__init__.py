"""Float fallback by measured time.

Enters: planned model, samples.
Leaves: a faster plan and what was measured.
Imports: lowering, planning, plan, operators, runtime, model, profiles.samples, profiles.records,
profiles.base.
"""
