"""What other tools record and choose, in and out: their ranges as a profile, their parameters as a plan.

Enters: files of other tools; profiles and plans.
Leaves: profiles and plans; files for other tools.
Imports: lowering, planning, equalization, rounding, plan, ranges, prepare, targets, operators, model,
numerics, profiles.instrumentation, profiles.samples, profiles.records, profiles.base.
"""
