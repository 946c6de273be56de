"""Verdicts follow from the records: states, and numbers as the records have them."""

import pytest

from iha.evaluate.paper import FINE_TUNED, MULTI_KEY_GAINS, PRETRAIN
from iha.report.page import verdicts
from iha.report.page.verdicts import THEOREMS, WORDS, language_model, theorems, verdict_section
from page_records import composition, record, results_of
from scale_model_records import run_record


def claims(theorem, passed, erratum=None):
    return [{"theorem": theorem, "passed": one, "erratum": erratum} for one in passed]


def test_a_theorem_holds_when_every_check_is_as_expected(tmp_path):
    checks = claims("superset", [True, True], "E2") + claims("cpm3", [True, False])
    found = {v.claim: v for v in theorems(results_of(tmp_path, record("verify", {"claims": checks})))}
    superset, cpm3 = (found[THEOREMS[name][0]] for name in ("superset", "cpm3"))
    assert (superset.state, superset.ours) == ("holds", "2 checks, 0 unexpected; 1 errata on the way")
    assert (cpm3.state, cpm3.ours) == ("fails", "2 checks, 1 unexpected")
    assert found[THEOREMS["flops"][0]].state == "open"


@pytest.mark.parametrize(
    ("iha", "finished", "state", "shown"),
    [
        (0.90, True, "holds", "+5.0 points (at the best epochs; rate 0.001, 1 seed)"),
        (0.80, True, "fails", "-5.0 points (at the best epochs; rate 0.001, 1 seed)"),
        (0.90, False, "open", "+5.0 points (at epoch 1, unfinished; rate 0.001, 1 seed)"),
    ],
)
def test_composition_is_judged_by_finished_runs_of_the_papers_model(iha, finished, state, shown, tmp_path):
    sweep = composition("ternary", {"mha": [0.8], "iha": [iha], "simplicial": [0.85]}, finished=finished)
    two, three = verdicts.composition(results_of(tmp_path, sweep))
    assert (three.state, three.ours) == (state, shown)
    assert (two.state, two.ours) == ("open", "not run with the paper's model")


def test_two_rates_that_disagree_decide_nothing(tmp_path):
    sweeps = [
        composition("binary", {"mha": [0.8], "iha": [iha], "simplicial": [0.85]}, learning_rate=rate)
        for rate, iha in ((1e-3, 0.9), (1e-4, 0.8))
    ]
    assert verdicts.composition(results_of(tmp_path, *sweeps))[0].state == "undecided"


def study(differences, folder="scale-model"):
    """Pre-training with these differences of IHA to global attention, one per seed."""
    records = []
    for seed, difference in enumerate(differences):
        records += [
            run_record("global", seed, [3.0, 2.0], folder=folder),
            run_record("iha", seed, [3.0, 2.0 + difference], folder=folder),
        ]
    return records


@pytest.mark.parametrize(
    ("differences", "state", "shown"),
    [
        ([-0.1, -0.11, -0.09], "holds", "-0.1000 ± 0.0248 nats per token, 95 % over 3 seeds"),
        ([0.1, 0.11, 0.09], "fails", "+0.1000 ± 0.0248 nats per token, 95 % over 3 seeds"),
        ([0.1, -0.1, 0.0], "undecided", "+0.0000 ± 0.2484 nats per token, 95 % over 3 seeds"),
        ([-0.1], "undecided", "-0.1000 nats per token, one seed"),
    ],
)
def test_the_scale_model_is_judged_by_its_paired_interval(differences, state, shown, tmp_path):
    first, *others = language_model(results_of(tmp_path, *study(differences)))
    assert first.state == state
    assert first.ours.startswith(shown)
    assert {verdict.state for verdict in others} == {"open"}


@pytest.mark.parametrize(
    ("added", "state", "shown"),
    [
        ((-0.3, -0.32, -0.31), "holds", "ihaP=4: -0.310 ± 0.025, 95 % over 3 seeds"),
        ((-0.3, 0.3, 0.01), "undecided", "over 3 seeds"),
        ((-0.3,), "undecided", "ihaP=4: -0.300, one seed"),
    ],
)
def test_pseudo_heads_are_judged_against_one_in_the_same_window(added, state, shown, tmp_path):
    runs = study([-0.1] * len(added))
    for seed, difference in enumerate(added):
        name = f"pretrain-iha-p1-in-the-window-of-p4-s{seed}"
        runs.append(
            run_record("iha", seed, (0.9,), variant="P=1 in the window of P=4", name=name, folder="scale-model")
        )
        runs.append(run_record("iha", seed, (0.9 + difference,), variant="P=4", folder="scale-model"))
    beyond = language_model(results_of(tmp_path, *runs))[1]
    assert beyond.state == state
    assert shown in beyond.ours
    assert language_model(results_of(tmp_path / "none"))[1].state == "open"


def test_more_seeds_say_more_than_this_run(tmp_path):
    results = results_of(tmp_path, *study([0.5]), committed=study([-0.1, -0.11, -0.09]))
    assert language_model(results)[0].state == "holds"


def test_without_runs_nothing_is_decided_and_the_papers_numbers_are_shown(tmp_path):
    found = language_model(results_of(tmp_path))
    assert {verdict.state for verdict in found} == {"open"}
    shown = " ".join(verdict.paper for verdict in found)
    for table in (PRETRAIN, FINE_TUNED):
        gain = table.rows["IHA"][0] - table.rows["Global Attention"][0]
        assert f"{table.measures[0].title} {gain:+.{table.measures[0].decimals}f}" in shown
    assert all(f"+{gain} %" in shown for gain in MULTI_KEY_GAINS.values())


def test_the_counts_are_those_of_the_table(tmp_path):
    html = verdict_section(results_of(tmp_path, *study([-0.1]))).html()
    for state, word in WORDS.items():
        inside = html.count(f'<td class="verdict {state}">')
        assert f'<strong class="verdict {state}">{inside}</strong>{word}' in html
