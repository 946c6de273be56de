"""Synthetic tasks: data as a pure function of (task, split, seed)."""

from iha.synthetic.tasks.base import IGNORE, SPLITS, Group, Task, generate
from iha.synthetic.tasks.cpm3 import CPM3
from iha.synthetic.tasks.polynomial import PolynomialFilter
from iha.synthetic.tasks.relations import RelationComposition
from iha.synthetic.tasks.retrieval import MultiKeyRetrieval

TASKS: dict[str, Task] = {
    "binary": RelationComposition("binary", sizes=(6, 7, 8, 9, 10), hops=2, density=0.325),
    "ternary": RelationComposition("ternary", sizes=(5, 6, 7, 8), hops=3, density=0.264),
    "cpm3": CPM3("cpm3", sizes=(6, 7, 8, 9, 10)),
    "polynomial": PolynomialFilter("polynomial", sizes=(16,)),
    "retrieval": MultiKeyRetrieval("retrieval", sizes=(8, 12, 16)),
}

__all__ = ["IGNORE", "SPLITS", "TASKS", "Group", "Task", "generate"]
