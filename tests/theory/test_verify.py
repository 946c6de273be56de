"""`iha.theory.verify`: all claims, what is written, what is refused."""

import json

import pytest

from iha.theory import verify
from iha.theory.claims import holds


def test_every_claim_passes_and_every_erratum_is_there() -> None:
    claims = verify.collect(verify.Settings())
    assert verify.failures(claims) == []
    assert {claim.theorem for claim in claims} == set(verify.CHECKS)
    errata = {claim.erratum for claim in claims if claim.erratum}
    # E24 is about widths and is shown by test_polynomial_filters alone; E28 is a question of wording.
    assert errata == {f"E{i}" for i in range(1, 29)} - {"E24", "E28"}


@pytest.mark.parametrize("seed", [1, 2])
def test_no_claim_depends_on_the_seed(seed) -> None:
    assert verify.failures(verify.collect(verify.Settings(seed=seed))) == []


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
    claims = verify.collect(verify.Settings(only="cpm3", n_max=25))
    assert verify.failures(claims) == []
    assert any("N_max = 25" in claim.checked for claim in claims)
    assert {claim.theorem for claim in claims} == {"cpm3"}


def test_results_are_plain_json_without_paths(tmp_path) -> None:
    settings = verify.Settings(only="flops")
    claims = [*verify.collect(settings), holds("flops", "c", "w", "x", error=float("inf"), tolerance=0.0)]
    verify.write(tmp_path / "deep" / "verify.json", verify.results(settings, claims, 0.0))
    written = json.loads((tmp_path / "deep" / "verify.json").read_text())
    assert written["command"] == "iha verify --only flops"
    assert written["failed"] == 1
    assert written["claims"][-1]["verdict"] == "FAILS"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["verify.json"]  # no half-written file is left
    assert "processor" in written["machine"]


def test_progress_is_reported() -> None:
    seen = []
    verify.collect(verify.Settings(only="tables"), lambda what, done, total: seen.append((what, done, total)))
    assert seen[0] == ("tables …", 0, 1)
    assert len(seen) > 2


def test_pictures(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    assert verify.pictures(tmp_path, ("patterns", "strictness", "cpm3", "polynomial")) == f"10 pictures in {tmp_path}"
    for path in tmp_path.iterdir():
        start = path.read_bytes()[:5]
        assert start == (b"\x89PNG\r" if path.suffix == ".png" else b"<?xml"), path.name
    assert verify.pictures(tmp_path, ("tables",)) == f"0 pictures in {tmp_path}"


def test_without_matplotlib_there_are_no_pictures_and_no_failure(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(verify, "find_spec", lambda name: None)
    assert verify.pictures(tmp_path, ("patterns",)).startswith("no pictures: matplotlib is not installed")
    assert list(tmp_path.iterdir()) == []
