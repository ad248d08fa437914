"""The search for better plans: candidates that are planned, run, scored and timed.

Enters: a model, its profile, samples, a target of quality.
Leaves: the plan that meets it; how sensitive outputs are to each node; a verdict, and what to try.

All searches go the same way. A candidate is the settings of one plan (`candidates`). `engine` makes the plan,
and predicts what the objective will be; where that is worth a trial, it writes the model, and the search runs
and scores it on samples (`tuning_data`). The best candidate by these figures is the result.

* `fixes` repairs one poor model: `proposals` are its candidates, a budget of seconds is its end, and the SQNR
  and score on the held-out samples choose. `grades` and `verdict` say what a model is worth.
* `tune` looks for the best plan that meets a target: `plan_search` is its strategy, `trial` runs and
  measures the plans, and `state` keeps the results, so that an interrupted tuning can be resumed.
* `closed_loop` runs a plan on check samples before its model is written, on every path. Its candidates differ
  in facts of planning that no setting has (nodes that stay float for their measured noise, noise budgets of
  single outputs), so it plans them itself; `output_shift` scores them.

What the searches share: `fallback_nodes` leaves float what cannot be written or run. `ranking` measures which
nodes add the noise, in groups, for all of them; `sensitivity` each node by itself; both in `submodels`.
`speed_check` measures speed, on `synthetic_samples` where there are none, and `node_costs` each node's part
of it.
"""
