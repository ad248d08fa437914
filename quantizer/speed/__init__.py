"""Where an int8 model loses time against its float one, measured node by node, and what to take back."""
