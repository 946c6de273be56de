"""All claims, what is recorded, what is refused."""

from contextlib import contextmanager

import pytest

from iha.records import read_record, write_record
from iha.theory import verify
from iha.theory.claims import holds


def test_every_claim_passes_and_every_erratum_is_there() -> None:
    claims = verify.run(verify.Settings())
    assert verify.failures(claims) == []
    assert {claim.theorem for claim in claims} == set(verify.CHECKS)
    errata = {claim.erratum for claim in claims if claim.erratum}
    # E24 is about widths and is shown by test_polynomial_filters alone; E28 is a question of wording, E29 about others.
    assert errata == {f"E{i}" for i in range(1, 30)} - {"E24", "E28", "E29"}


@pytest.mark.parametrize("seed", [1, 2])
def test_no_claim_depends_on_the_seed(seed) -> None:
    assert verify.failures(verify.run(verify.Settings(seed=seed))) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"only": "theorem9"}, "unknown check 'theorem9'; known are superset, "),
        ({"n_max": 0}, "--n-max must be at least 1, got 0"),
        ({"n_max": 5000}, "N_max = 5000 needs about"),
        ({"k": 1}, "--k must be at least 2, got 1"),
        ({"only": "polynomial", "k": 0}, "--k must be at least 1, got 0"),
        ({"k": 100_000}, "bytes"),
        ({"only": "flops", "k": 3}, "has no meaning with --only flops"),
        ({"only": "patterns", "n_max": 3}, "has no meaning with --only patterns"),
    ],
)
def test_settings_are_refused_before_anything_runs(arguments, message) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        verify.Settings(**arguments)


def test_one_check_at_a_chosen_size() -> None:
    claims = verify.run(verify.Settings(only="cpm3", n_max=25))
    assert verify.failures(claims) == []
    assert any("N_max = 25" in claim.checked for claim in claims)
    assert {claim.theorem for claim in claims} == {"cpm3"}


def test_the_record_survives_its_file(tmp_path, monkeypatch) -> None:
    infinite = holds("flops", "c", "w", "x", error=float("inf"), tolerance=0.0)
    monkeypatch.setitem(verify.CHECKS, "flops", lambda settings: iter([infinite]))
    record = verify.verify(verify.Settings(only="flops"), "iha verify --only flops")
    write_record(tmp_path / "verify.json", record)
    written = read_record(tmp_path / "verify.json", "verify")
    assert written.command == "iha verify --only flops"
    assert written.config["only"] == "flops"
    assert written.results["failed"] == 1
    assert [claim["verdict"] for claim in written.results["claims"]] == ["FAILS"]
    assert written.results["claims"][0]["error"] == "inf"
    assert len(written.results["errata"]) == 29
    assert written.results["gallery"] == {}


def test_progress_is_reported() -> None:
    class Heard:
        def __init__(self) -> None:
            self.steps, self.notes = 0.0, []

        @contextmanager
        def task(self, description, total=None, done=0):
            self.total = total
            yield self

        def advance(self, steps=1, note=None) -> None:
            self.steps += steps
            self.notes += [note] if note else []

    heard = Heard()
    claims = verify.run(verify.Settings(only="tables"), heard)
    assert heard.steps == heard.total == 1
    assert heard.notes == [f"tables: {claim.claim}" for claim in claims]
