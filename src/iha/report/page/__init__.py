"""One self-contained HTML page from the records of runs: what IHA is, and whether the paper holds.

`results` finds records, one module per section turns them into parts, `build` puts the page together. Nothing here
runs an experiment, and no number is typed in: a missing record appears as missing, with the command that makes it.
"""
