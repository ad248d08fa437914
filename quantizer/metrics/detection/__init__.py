"""Object detection: heads, boxes, truth, F1 and mean average precision."""
