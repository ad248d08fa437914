"""What commands print: text and JSON."""
