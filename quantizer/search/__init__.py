"""The search for better plans: candidates that are planned, run, scored and timed.

Enters: a model, its profile, samples, a target of quality.
Leaves: the plan that meets it; how sensitive outputs are to each node; a verdict, and what to try.

`engine` makes plans and models of candidates, and estimates for the report. `fixes` searches with a budget
of seconds, among `proposals`; `tune` with a target: `plan_search` is its strategy, `trial` makes and measures
the plans, and `state` keeps them. `closed_loop` runs a plan on samples before its model is written. `ranking`
measures which nodes add the noise, in groups, for all of them; `sensitivity` each node by itself.
`speed_check` measures speed. `grades` and `verdict` say what all this is worth.
"""
