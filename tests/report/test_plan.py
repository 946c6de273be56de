"""The table of a plan: what fits, and what would make the rest fit."""

from iha.report.plan import plan_table

GIB = 2**30


def row(total, remedy, remedied=None):
    kinds = {"parameters": GIB, "gradients": 0, "optimiser": 0, "activations": (total - 1) * GIB}
    return {
        "attention": "iha", "parameters": 2 * 10**9, "footprint": kinds, "flops_per_step": 10**16, "days": 2.5,
        "ratio_to_global": 0.99, "cache_bytes": 2**21, "remedy": remedy, "remedied": remedied,
    }  # fmt: skip


def test_what_fits_and_what_does_not():
    better = {"parameters": GIB, "gradients": 0, "optimiser": 0, "activations": 4 * GIB}
    plans = [row(8, None), row(12, ["parallel.micro_batch=1"], better), row(99, [])]
    text = plan_table(plans, title="t", gpu_bytes=10 * GIB, usable=0.9).markdown()
    assert "| iha | 2.000 | 1.0 | 0.0 | 0.0 | 7.0 | 8.0 | yes | 10.00 | 0.990 | 2.50 | 2 |" in text
    assert "iha does not fit; with parallel.micro_batch=1: 5.0 GiB" in text
    assert "no setting makes it: more GPUs to shard over" in text
