"""How noise travels through a model, measured: copies of it with rounded activations and rounded weights, run
side by side with the float one.

Enters: the prepared model, names of activations, samples.
Leaves: mean squares of signal and noise for each activation and sample.
Imports: operators, model, numerics, profiles.runner, profiles.instrumentation, profiles.runtime,
profiles.samples, profiles.readers, profiles.noise, profiles.base.
"""
