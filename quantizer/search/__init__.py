"""The search for better plans: they are proposed, made, run, and kept or not.

All searches are one (`loop`) and differ in what they propose, on what they judge, and in the rule: on check
samples before a model is written (`closed_loop`), as settings for a poor model on held-out samples (`fixes`,
`verdict`), by the clock (`speed`) and for a target of quality, both plug-ins. `fallback_nodes` leaves float
what cannot be written or run; `ranking` measures which nodes add the noise.
"""
