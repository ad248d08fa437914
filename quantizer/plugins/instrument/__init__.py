"""A model that records its own activations.

Enters: a prepared model.
Leaves: it with a `QuantizationProfile` node on each activation.
"""
