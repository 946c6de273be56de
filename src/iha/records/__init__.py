"""The ground floor: what every result has in common.

`record` is the one envelope of every result file, `files` writes atomically, `host` describes the machine, `table` is
the one Table (terminal, Markdown, LaTeX, HTML), `progress` is how a long function reports its progress.
"""

from iha.records.files import (
    locked,
    output_directory,
    read_json,
    remove_leftovers,
    work_in,
    write_bytes,
    write_json,
    write_text,
)
from iha.records.progress import Progress, Task, silent
from iha.records.record import Record, read_record, write_record
from iha.records.table import Column, Table

__all__ = [
    "Column",
    "Progress",
    "Record",
    "Table",
    "Task",
    "locked",
    "output_directory",
    "read_json",
    "read_record",
    "remove_leftovers",
    "silent",
    "work_in",
    "write_bytes",
    "write_json",
    "write_record",
    "write_text",
]
