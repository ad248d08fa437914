"""The search for better plans: candidates that are planned, run, scored and timed.

Enters: a model, its profile, samples, a target of quality.
Leaves: the plan that meets it; how sensitive outputs are to each node; a verdict, and what to try.

All searches are one (`loop`): plans are proposed, made, judged, and kept or not. They differ in what they
propose, on what they judge, and in the rule.

* `fixes` proposes changes of settings for one poor model; a budget of processor seconds is its end, and the
  grade, SQNR and score on the held-out samples choose. `grades` and `verdict` say what a model is worth.
* `tune`, a plug-in, looks for the best plan that meets a target: it proposes settings and nodes in float
  (`candidates`).
* `closed_loop` runs a plan on check samples before its model is written, on every path. Its plans differ in
  what is known of others (`planning.known`): nodes that stay float for their measured noise, looser noise
  budgets. `output_shift` scores them.

What the searches share: `fallback_nodes` leaves float what cannot be written or run. `ranking` measures which
nodes add the noise, in groups, on `submodels`.
`node_costs` measures each node's part of the speed; `speed` is what the check by the clock found, a plug-in.
"""
