"""Experiments made of training and evaluation: the paper's main experiment at a size that anyone can repeat.

`plan` lists the runs, `run` makes them, `probe` tests a model on puzzles while it trains, `compare` compares runs. The
report draws what `compare` writes.
"""
