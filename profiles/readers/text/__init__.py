"""Lines of text, as the token ids that a tokenizer makes of them."""
