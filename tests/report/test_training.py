"""The loss curve and the table of the trainer's bench."""

import pytest

from iha.report.training import loss_curve, trainer_table


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_curve_of_training_and_every_held_out_source(tmp_path, suffix):
    records = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 2, "validation/a": 2.5}]
    loss_curve(records, "a run", tmp_path / f"loss.{suffix}")
    content = (tmp_path / f"loss.{suffix}").read_bytes()
    assert content.startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")


def test_the_bench_says_ratio_memory_and_time():
    speed = {"tokens_per_second": {"trainer": 97.0, "bare": 100.0}, "ratio": 0.97, "ratio_of_medians": 0.98}
    loader = [{"corpus_megabytes": 1, "grown_bytes": 2**20, "tokens_per_second": 1e6}]
    text = trainer_table({"speed": speed, "loader": loader, "first_step": {"seconds": 6.0}}).markdown()
    for expected in ("all steps | 0.970", "1 MB, MiB | 1.0", "nothing prepared | 6.0"):
        assert expected in text
