"""The search for better plans: they are proposed, made, run, and kept or not.

All searches share one loop (`loop`) and differ in their proposals, their samples and their rule: plans on
check samples before a model is written (`closed_loop`), settings for a poor model on held-out samples
(`fixes`, `verdict`), by the clock (`speed`) and for a target of quality, both plug-ins. `fallback_nodes`
keeps nodes float that cannot be written or run; `ranking` measures the noise of nodes.
"""
