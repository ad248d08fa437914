"""Words of other tools: what they call a setting, an option or a type of qprof.

Enters: nothing; these are tables.
Leaves: answers to a word that qprof does not know (`profiles/base/other_words.py`).
"""
