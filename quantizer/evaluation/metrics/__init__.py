"""Task scores: top-k, boxes, masks, retrieval, texts, pictures, numbers, and functions of users."""
