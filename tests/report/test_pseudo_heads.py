"""One row per model, with the numbers of its record."""

from iha.report.pseudo_heads import pseudo_heads_table


def test_a_model_in_one_row():
    found = {"mean": 0.25, "least": 0.125, "largest": 0.5}
    names = ("patterns_apart", "queries_apart", "contributing", "effective_rank")
    summary = dict.fromkeys((*names, "without_query", "without_value", "without_head"), found)
    results = {"summary": summary | {"pseudo_heads": 2, "cosine": dict.fromkeys("qkv", found)}}
    table = pseudo_heads_table([("mine", results)])
    cost = "+0.2500 (+0.5000)"
    assert table.rows == [["mine", "2", "0.250", "0.25", "0.25", "0.25", "0.25", cost, cost, cost]]
