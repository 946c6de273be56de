"""The table of the comparison says what its records say."""

from iha.experiment.architectures import conclusion
from iha.records import Record
from iha.report.architectures import architectures_table


def record_of(seeds: list[int]) -> Record:
    def run(mechanism: str, seed: int, loss: float) -> dict:
        scores = {"loss": loss, "accuracy": 1 - loss}
        return {"mechanism": mechanism, "rate": 1e-3, "seed": seed, "validation": scores, "test": scores}

    runs = [run("iha", s, 0.25 + 0.125 * s) for s in seeds] + [run("multihead", s, 0.5 + 0.25 * s) for s in seeds]
    models = {
        "iha": {"feed_forward": 128, "parameters": 12345, "forward_flops_per_batch": 2_500_000},
        "multihead": {"feed_forward": 168, "parameters": 23456, "forward_flops_per_batch": 2_600_000},
    }
    config = {"task": "digits", "steps": 7, "seeds": seeds}
    return Record.new("architectures", command="x", config=config).finished({"models": models, **conclusion(runs)})


def test_means_spreads_and_differences() -> None:
    text = architectures_table([record_of([0, 1])]).markdown()
    assert "vision, handwritten digits (7 steps, 2 seeds)" in text
    for cell in ("12,345", "2.5", "168", "0.312 ± 0.088", "68.8 ± 8.8 %", "-0.312 (p = 0.13)", "+31.2 pp (p = 0.13)"):
        assert cell in text, cell


def test_one_seed_has_neither_spread_nor_p() -> None:
    text = architectures_table([record_of([0])]).markdown()
    assert "±" not in text.split("Mean over seeds")[0]
    assert "-0.250" in text
    assert "p =" not in text
