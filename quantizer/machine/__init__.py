"""This machine: its processor, the runtimes that are installed, and the target that they stand for.

Enters: what the system tells of the processor, what is installed.
Leaves: `Processor`; the name of a target and why.
Imports: profiles.base.
"""
