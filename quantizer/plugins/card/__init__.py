"""Cards: the record of a quantized model, held against the model itself or against a newer card.

Enters: both models, samples; a card.
Leaves: a `Card`; a `Verification` of it.
"""
