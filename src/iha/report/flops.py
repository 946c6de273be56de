"""The answer of `iha flops` in tables that fit 80 columns, from its record."""

from collections.abc import Sequence
from typing import Any

from iha.accounting.table import pseudo_numbers
from iha.records import Column, Record, Table

_NAME = Column("mechanism", wrap=False)


def tables(record: Record) -> list[Table]:
    """Tables of a "flops" record: parameters and cache, FLOPs, schedules, their ratios, matched windows, decoding."""
    answer = record.results
    found = [_sizes(answer), _flops(answer), _schedules(answer), _ratios(answer), _matches(answer)]
    return [*found, _decoding(answer)] if answer["decoding"] else found  # none without causality


def markdown(record: Record) -> str:
    return "\n".join(table.markdown() for table in tables(record))


def _sizes(answer: dict[str, Any]) -> Table:
    shape, question = answer["question"]["shape"], answer["question"]
    kv_heads = shape["num_kv_heads"] or shape["num_heads"]
    head_dim = shape["head_dim"] or shape["embed_dim"] // shape["num_heads"]
    title = (
        f"One layer, {question['num_tokens']} tokens: width {shape['embed_dim']}, {shape['num_heads']} heads, "
        f"{kv_heads} k/v heads of {head_dim}, causal={shape['causal']!r}, {question['element_size']} bytes per number"
    )
    numbers = _numbers("W", "P", "all weights", "added weights", "cache", "pseudo cache", "patterns")
    table = Table(title, [_NAME, *numbers])
    for row in answer["layers"]:
        parameters = row["parameters"]
        pseudo = size(row["pseudo_head_cache_bytes"]) if _pseudo(row) != "1" else None
        table.add([
            row["mechanism"], row["window"], _pseudo(row),
            count(parameters["projections"] + parameters["mixing"]), count(parameters["mixing"]),
            size(row["cache_bytes"]), pseudo, row["patterns_per_head"],
        ])  # fmt: skip
    table.note("added: beyond the four projections; pseudo cache: if pseudo-heads were cached and not un-mixed heads")
    table.note("patterns: attention maps over the tokens that the output of one head combines")
    return table


def _flops(answer: dict[str, Any]) -> Table:
    numbers = _numbers("W", "P", "project", "mix", "attend", "to global", "flash kernel")
    table = Table("FLOPs of that layer's forward pass", [_NAME, *numbers])
    for row in answer["layers"]:
        kernel = None if row["kernel_flops"] is None else count(row["kernel_flops"]["attention"])
        parts = (count(row["flops"][part]) for part in ("projections", "mixing", "attention"))
        names = (row["mechanism"], row["window"], _pseudo(row))
        table.add([*names, *parts, f"{row['attention_to_global']:.4g}", kernel])
    table.note("to global: mixing + attention over a global multi-head layer's attention; flash kernel: its attention")
    for mechanism, why in {row["mechanism"]: row["flash_obstacle"] for row in answer["layers"]}.items():
        if why is not None:
            table.note(f"no flash kernel for {mechanism}: {why}")
    return table


def _schedules(answer: dict[str, Any]) -> Table:
    question = answer["question"]
    title = f"The attention of {question['num_layers']} layers, {question['num_tokens']} tokens"
    table = Table(title, ["schedule", "layers", *_numbers("parameters", "cache", "FLOPs: attention")])
    for row in answer["schedules"]:
        layers = "; ".join(f"{n} × {kind}" for kind, n in row["layers"].items())
        parameters = count(row["parameters"]["projections"] + row["parameters"]["mixing"])
        table.add([row["schedule"], layers, parameters, size(row["cache_bytes"]), count(row["flops"]["attention"])])
    return table


def _ratios(answer: dict[str, Any]) -> Table:
    numbers = _numbers("paper's count", "causal", "exact", "with mixing", "and projections")
    table = Table("Their cost relative to global attention", ["schedule", *numbers])
    for row in answer["schedules"]:
        ratios = [row["attention_to_global"][name] for name in ("paper", "causal", "exact")]
        ratios += [row["with_mixing"], row["with_projections"]]
        table.add([row["schedule"], *(f"{ratio:.4f}" for ratio in ratios)])
    return table


def _matches(answer: dict[str, Any]) -> Table:
    question = answer["question"]
    title = f"The window at which four IHA layers with P = {_pseudo(question)} and a global one cost so much"
    numbers = _numbers("of global", "solution", "window", "ratio", "one token above")
    table = Table(title, ["convention", "counted", *numbers])
    for row in answer["matches"]:
        found = row["match"]
        cells: Sequence[str | None] = ("none", None, None, None)
        if found is not None:
            above = None if found["ratio_above"] is None else f"{found['ratio_above']:.4f}"
            cells = (f"{found['solution']:.2f}", str(found["window"]), f"{found['ratio']:.4f}", above)
        table.add([row["convention"], " + ".join(row["parts"]), f"{row['target']:g}", *cells])
    table.note(f"the tables above have a window of {answer['local_window']}")
    return table


def _decoding(answer: dict[str, Any]) -> Table:
    title = f"One decoding step of a layer behind {answer['question']['num_tokens']} cached tokens, one sequence"
    gpus = list(answer["ridges"])
    bounds = [f"{name.upper()}, at least" for name in gpus]
    table = Table(title, [_NAME, *_numbers("W", "P", "FLOPs", "cache read", "scores", "FLOPs per byte", *bounds)])
    for row in answer["decoding"]:
        step = row["step"]
        table.add([
            row["mechanism"], row["window"], _pseudo(row), count(step["flops"]), size(step["cache_bytes"]),
            size(step["score_bytes"]), f"{row['flops_per_byte']:.3g}",
            *(f"{1e6 * row['seconds'][name]:.3g} µs" for name in gpus),
        ])  # fmt: skip
    ridges = ", ".join(f"{ridge:.0f} on {name.upper()}" for name, ridge in answer["ridges"].items())
    table.note(f"memory is the limit below these FLOPs per byte (bfloat16): {ridges}; above, arithmetic is")
    table.note("scores: scores and weights between the two products, each written once and read once")
    return table


def _pseudo(row: dict[str, Any]) -> str:
    """P; records from before there were two numbers have one."""
    return pseudo_numbers(row["num_pseudo_heads"], row.get("num_pseudo_keys") or row["num_pseudo_heads"])


def count(number: int) -> str:
    """1234567 as 1.23 M; digits after the third are for the JSON."""
    for exponent, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**exponent:
            return f"{_three_digits(number / 10**exponent)} {letter}"
    return str(number)


def size(number: int | None) -> str:
    if number is None:
        return "none"
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 1 << exponent:
            return f"{_three_digits(number / (1 << exponent))} {unit}"
    return f"{number} B"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _numbers(*titles: str) -> list[Column]:
    """Headings may break over lines, so that the tables stay narrow; numbers are short enough not to."""
    return [Column(title, align="right") for title in titles]
