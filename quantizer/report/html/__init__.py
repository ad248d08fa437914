"""The HTML report: one file, no network.

Enters: `Report`.
Leaves: the text of report.html.
Imports: report, profiles.base.
"""
