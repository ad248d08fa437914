"""The files of a report.

Enters: `Report`.
Leaves: a folder with report.html, report.md, junit.xml and report.json.
Imports: report, report.html, profiles.base.
"""
