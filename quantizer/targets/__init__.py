"""What the user asked for and what a runtime can execute.

Enters: configs/*.yaml, options.
Leaves: `Recipe` = `QuantConfig` + `Target`; checks of settings and of written models.
"""
