"""What other tools record and choose, in and out: their ranges as a profile, their parameters as a plan.

Enters: files of other tools; profiles and plans.
Leaves: profiles and plans; files for other tools.
"""
