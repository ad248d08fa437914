"""The user's settings and the capabilities of a runtime.

Enters: configs/*.yaml, options.
Leaves: `Recipe` = `QuantConfig` + `Target`; checks of settings and of written models.
"""
