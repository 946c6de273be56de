"""Experiments made of training and evaluation: the paper's main experiment at a size that anyone can repeat.

`plan` says which runs there are, `run` makes them, `probe` asks a model puzzles while it trains, `compare` sets runs
side by side. The report draws what `compare` writes.
"""
