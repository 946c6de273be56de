"""The main job: everything that answers whether the paper holds, stage by stage, and the report at the end.

`stages` says what is run at which scale, `run` runs it. Every stage is a command that a person could type, in a process
of its own: one that fails takes no other with it, and all of them resume by themselves.
"""
