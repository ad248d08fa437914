"""Options of reports, and what commands do with `--report`."""
