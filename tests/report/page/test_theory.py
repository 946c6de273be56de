"""Cards of the theorems: how many statements hold, the largest error, and what was unexpected."""

from iha.records import Record, write_record
from iha.report.page.results import Results
from iha.report.page.theory import theory_section


def claim(theorem, verdict="holds", passed=True, error=None):
    return {
        "theorem": theorem, "claim": "a claim", "where": "(section 1)", "checked": "run", "error": error,
        "verdict": verdict, "passed": passed, "expected": "true", "erratum": None, "formula": None, "allocated": None,
    }  # fmt: skip


def section(tmp_path, claims, **gallery):
    results = {"claims": claims, "errata": [], "failed": sum(not c["passed"] for c in claims), "gallery": gallery}
    write_record(tmp_path / "v.json", Record.new("verify", command="iha verify", config={}).finished(results))
    return theory_section(Results(tmp_path, None))


def test_a_card_per_theorem(tmp_path):
    claims = [
        claim("superset", error=2e-13), claim("superset", error=5e-12), claim("superset", "false as printed"),
        claim("cpm3", "FAILS", passed=False),
    ]  # fmt: skip
    html = section(tmp_path, claims).html()
    assert (
        "<h3>superset</h3><p>2 of 3 statements hold; all as expected. "
        "Largest error where it should be zero: 5.0e-12.</p>"
    ) in html
    assert '<h3>cpm3</h3><p>0 of 1 statements hold; <span class="verdict fails">1 unexpected</span>.</p>' in html
    assert "4 checks: 3 hold" in html
    assert "<summary>All 4 checks</summary>" in html


def test_charts_of_the_gallery_hold_its_numbers(tmp_path):
    strictness = {"t": [0, 1], "printed": [0.0, 0.0], "corrected": [0.0, 0.76], "note": "text"}
    parameters = {"filters": {"k": [2, 4], "mha": [10, 20], "iha": [5, 7]}}
    first, second = section(tmp_path, [claim("a")], strictness=strictness, parameters=parameters).charts
    rows = first.spec["data"]["values"]
    assert [(row["layer"], row["t"], row["output"]) for row in rows] == [
        ("printed", 0, 0.0), ("printed", 1, 0.0), ("corrected", 0, 0.0), ("corrected", 1, 0.76),
    ]  # fmt: skip
    rows = second.spec["data"]["values"]
    assert [(row["construction"], row["size"], row["parameters"]) for row in rows] == [
        ("MHA, whole layer", 2, 10), ("MHA, whole layer", 4, 20),
        ("IHA, whole layer", 2, 5), ("IHA, whole layer", 4, 7),
    ]  # fmt: skip


def test_without_a_record_the_command_is_shown():
    html = theory_section(Results(None, None)).html()
    assert "Not run: the checks of the theorems." in html
    assert "<code>iha verify</code>" in html
