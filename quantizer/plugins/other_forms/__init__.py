"""Forms of a quantized model for compilers: plain integers, plain arithmetic, functions; `FORMS` names them.

Enters: a prepared model and its plan.
Leaves: the model in one of these forms.
"""
