"""The main job: everything that answers whether the paper holds, stage by stage, and the report at the end.

`stages` lists what is run at which scale, `run` runs it. Every stage is an ordinary `iha` command in a separate
process: a failed stage does not stop the others, and every stage can resume.
"""
