"""One module for each format of scales and zero points that other tools choose."""
