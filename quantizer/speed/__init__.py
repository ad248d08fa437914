"""What is written and run at all, and the fastest plan by measured time.

Enters: planned model, samples.
Leaves: a plan that runs; a faster plan and what was measured.
Imports: lowering, planning, costs, plan, prepare, targets, cost_table, machine, operators, runtime, model,
numerics, profiles.samples, profiles.readers, profiles.records, profiles.base.
"""
