"""Changes of the float model that make integers better: scales moved between operators, corrected biases.

Each step looks at the prepared model and its profile and returns a frozen record (`record`); the records are
applied to the model before it is planned and again before it is written (`apply`), so that a plan says all.
"""
