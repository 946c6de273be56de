"""Experiments made of training and evaluation: the paper's main experiment at a size that anyone can repeat.

`plan`, `upcycle` and `allocated` list the runs, `run` makes them, `probe` tests a model on puzzles while it trains,
`compare` compares runs. `measure` (with `haystack`), `inside` and `evaluation` (with `questions`) look at finished
runs. The report draws what they write.
"""
