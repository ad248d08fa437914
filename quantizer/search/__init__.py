"""The search for better plans: candidates that are planned, run, scored and timed.

Enters: a model, its profile, samples, a target of quality.
Leaves: the plan that meets it; how sensitive outputs are to each node; a verdict, and what to try.

`engine` makes plans and models of candidates; `fixes` searches with a budget of seconds, `tune` (with
`search`, its strategy, and `trial`, which answers it) with a target. `ranking` measures which nodes add
the noise, in groups, for both; `sensitivity` each node by itself. `speed_check` measures speed.
`verdict` says what all this is worth.
"""
