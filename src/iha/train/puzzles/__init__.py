"""Puzzles: documents made by a rule, text whose answers are known, as a pure function of (name, split, seed, index).

Real text alone shows little of what attention can do in a small model. Puzzles ask for exactly what the paper
claims for IHA: many keys and values to remember (`retrieval`), facts to chain (`hops`), steps to reason (`arithmetic`).
"""

from iha.train.puzzles.puzzle import Piece, Puzzle, generate
from iha.train.puzzles.table import PUZZLES

__all__ = ["PUZZLES", "Piece", "Puzzle", "generate"]
