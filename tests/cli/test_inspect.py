"""`iha inspect`: models by name into one record."""

from cli.calls import assert_refused, iha
from iha.records import read_record


def test_a_record_of_the_models_and_texts(trained, tmp_path):
    words = ["inspect", f"IHA={trained / 'export'}", "--text", "Ann and Ben.", "--tokens", 5, "--out", tmp_path / "in"]
    result = iha(*words)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "in" / "inside.json", "inside")
    assert record.config == {"models": ["IHA"], "texts": ["Ann and Ben."]}
    (example,) = record.results["examples"]
    assert len(example["tokens"]) == 5
    assert record.command.startswith("iha inspect IHA=")


def test_mistakes_are_refused(trained, tmp_path):
    export, out = trained / "export", tmp_path / "in"
    assert_refused(iha("inspect", "IHA", "--out", out), "expected NAME=DIRECTORY of an export, got 'IHA'")
    assert_refused(iha("inspect", f"A={export}", f"A={export}", "--out", out), "two models are called 'A'")
    assert_refused(iha("inspect", f"A={export}", "--tokens", 0, "--out", out), "at least 1, got 0")
    assert not out.exists()
