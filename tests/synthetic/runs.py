"""Small runs that the tests of this room share."""

from dataclasses import replace
from typing import Any

from iha.synthetic.config import RunConfig

TINY = RunConfig(
    "binary", "multihead", (3, 4), train_examples=96, validation_examples=32, test_examples=32, width=16, num_heads=2,
    num_pseudo_heads=1, init="", batch_size=16, epochs=3, patience=10,
)  # fmt: skip
TINY_IHA = replace(TINY, mechanism="iha", num_pseudo_heads=2, init="one_hot")


def numbers(record: dict[str, Any]) -> list[dict[str, float]]:
    """The history without what the clock says."""
    return [{k: v for k, v in entry.items() if not k.endswith("seconds")} for entry in record["history"]]
