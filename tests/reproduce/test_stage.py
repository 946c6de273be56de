"""A stage as it is typed and as it is started."""

import sys

import pytest

from iha.reproduce.stage import Stage


def stage(**changes):
    return Stage("train", "Train", ("train", "r.yaml", "--out", "x"), 1.0, **changes)


def test_one_process_is_the_plain_command():
    assert stage().command == "iha train r.yaml --out x"
    assert stage().argv == [sys.executable, "-m", "iha", "train", "r.yaml", "--out", "x"]


def test_several_processes_are_started_by_torchrun():
    assert stage(processes=8).command == "torchrun --standalone --nproc-per-node 8 -m iha train r.yaml --out x"
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "8", "-m", "iha", "train", "r.yaml"]
    assert stage(processes=8).argv == [sys.executable, "-m", *words, "--out", "x"]


def test_several_nodes_meet_at_one_and_are_not_started_from_here():
    two = stage(processes=8, nodes=2)
    assert two.command.startswith("torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint ")
    assert two.command.endswith(" -m iha train r.yaml --out x")
    with pytest.raises(ValueError, match="train runs on 2 nodes: start it on each of them"):
        _ = two.argv
