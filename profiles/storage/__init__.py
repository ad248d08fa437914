"""Files of data, on this machine or in a store that fsspec opens: read one at a time, never copied to disk.

Enters: a path or a URL.
Leaves: its files (`DataFile`), in natural order, and their bytes.
Imports: base.
"""
