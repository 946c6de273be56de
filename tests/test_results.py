"""The committed results are records that today's code reads."""

from pathlib import Path

import pytest

from iha.records import read_record

RESULTS = Path(__file__).parent.parent / "results"
KINDS = {
    "architectures/dates.json": "architectures",
    "architectures/digits.json": "architectures",
    "architectures/masked-text.json": "architectures",
    "attention/attention.json": "attention-bench",
    "attention/attention-epyc5.json": "attention-bench",
    "model/cpu-2048-10m.json": "model-bench",
    "model/cpu-2048-50m.json": "model-bench",
    "model/cpu-2048-training.json": "model-bench",
    "model/cpu-2048-decoding-epyc5.json": "model-bench",
    "model/hugging_face.json": "hugging-face-tests",
    "theory/learned.json": "learned",
    "theory/verify.json": "verify",
    "synthetic/speed/speed.json": "synthetic-speed",
}


@pytest.mark.parametrize("name", KINDS)
def test_a_result_is_a_record_of_its_kind(name) -> None:
    record = read_record(RESULTS / name, KINDS[name])
    assert record.command.startswith(("iha ", "python benchmarks/"))
    assert record.machine["processor"]
    assert record.results
