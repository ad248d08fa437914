"""What becomes of each node of a model when another tool has decided: kinds, parameters, reasons."""
