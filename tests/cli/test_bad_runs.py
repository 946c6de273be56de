"""Bad input of the commands that train, evaluate and report. The others are in test_bad_input.py."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tiny_checkpoint
from iha.cli.main import app
from refusal import HUGE, refused

RECIPES = Path(__file__).parent.parent.parent / "recipes" / "scale-model"
RECIPE = """
model:
  config: {hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, global_every: null}
data: {context: 32, batch: 2, validation: 0.2, sources: [{name: hops, kind: generated, generator: hops, count: 20}]}
schedule: {steps: 1, warmup: 0}
parallel: {micro_batch: 2}
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("train", "recipe.yaml"),
    "prepare": ("prepare", "recipe.yaml"),
    "plan": ("plan", "recipe.yaml", "--gpus", "2"),
    "export": ("export", "run"),
    "eval run": ("eval", "run", "run/export", "--tasks", "gsm8k", "--cache", "cache"),
    "eval table": ("eval", "table", "evaluation"),
    "experiment": ("experiment", "scale-model", "--recipes", str(RECIPES), "--size", "quick", "--runs", "runs"),
    "reproduce": ("reproduce",),
    "report": ("report",),
    "inspect": ("inspect", "IHA=run/export"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, a run of it, its export, and an evaluation."""
    place = tmp_path_factory.mktemp("made")
    (place / "recipe.yaml").write_text(RECIPE)
    for words in (["train", place / "recipe.yaml", "--out", place / "run"], ["export", place / "run"]):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
    record = json.loads((place / "run" / "run.json").read_text())
    scores = {"metrics": {"P@1": 50.0}, "questions": 2, "asked": "x", "scores": {"P@1": [0, 1]}}
    (place / "evaluation").mkdir()
    record |= {"kind": "evaluation", "config": {"model": "tiny"}, "results": {"gsm8k": scores}}
    (place / "evaluation" / "eval.json").write_text(json.dumps(record))
    tiny_checkpoint.write(place / "llama")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_out_that_cannot_be_written(command: tuple[str, ...], place: Path) -> None:
    for out in ("file", "file/below", "x" * 300):
        assert out[:60] in refused([*command, "--out", out], place)


# What is changed in the recipe, and what the message names.
RECIPE_CHANGES = [
    ("nothing=1", "nothing: no such key"), ("schedule.steps", "key.path=value"), ("seed.x=1", "seed"),
    ("data.sources.7.name=a", "'7' is no index"), ("schedule.steps=x", "must be int, got 'x'"),
    ("schedule.steps=0", "steps must be positive"), (f"schedule.steps={HUGE}", HUGE),
    ("schedule.steps=10000000000", "at most 1000000000"), ("schedule.warmup=9", "warmup"),
    ("schedule.final=.nan", "schedule.final: must be a finite number"),
    ("optimiser.learning_rate=.nan", "learning_rate: must be a finite number"),
    ("optimiser.learning_rate=1e400", "got inf"), ("optimiser.weight_decay=-1", "must not be negative, got -1"),
    ("optimiser.clip=.inf", "got inf"), (f"data.context={HUGE}", HUGE), (f"data.batch={HUGE}", HUGE),
    ("data.batch=1000000000000", "taken for a mistake"), ("data.validation=1", "validation"),
    ("data.sources=[]", "at least one"), ("data.sources.0.kind=x", "must be one of stdlib"),
    ("data.sources.0.generator=poems", "no puzzle is called 'poems'"), (f"data.sources.0.count={HUGE}", HUGE),
    ("data.sources.0.count=10000000000", "at most 1000000000"), ("data.sources.0.weight=.nan", "got nan"),
    ("data.sources.0.name=../x", "'../x'"), ("data.sources=[{name: a, kind: text, paths: [none.txt]}]", "none.txt"),
    ("data.sources=[{name: a, kind: jsonl, paths: [recipe.yaml]}]", "recipe.yaml: the line at byte 1 is not JSON"),
    ("data.sources=[{name: a, kind: text, paths: [run/export/model.safetensors]}]", "not UTF-8"),
    ("data.tokenizer={kind: file, path: none.json}", "none.json"), ("data.tokenizer.end=none", "'none'"),
    ("name=../out", "'../out'"), ("name=.", "'.'"), ("seed=-1", "seed must not be negative, got -1"),
    (f"seed={HUGE}", HUGE),
]  # fmt: skip
TRAINING_CHANGES = [
    ("data.directory=file", "cannot write results to file"), ("data.directory=file/below", "file/below"),
    ("model.preset=none", "no preset 'none'"), ("model.attention=lstm", "lstm"), ("model.config=3", "got 3"),
    ("model.config.num_pseudo_head=3", "model.config.num_pseudo_head: IHAConfig has no such field"),
    ("model.config.hidden_size=-1", "hidden_size must be at least 1"), (f"model.config.hidden_size={HUGE}", HUGE),
    ("model.config.num_hidden_layers=100000000", "at most 10000"), ("model.config.initializer_range=.nan", "nan"),
    ("model.config.hidden_act=x", "hidden_act"), ("model.config.layer_schedule=[[[]]]", "layer_schedule"),
    ("model.init_from=none", "none has no config.json"), ("model.init_from=llama", "llama"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "named"), [*RECIPE_CHANGES, *TRAINING_CHANGES], ids=lambda words: words[:40])
def test_recipes(change: str, named: str, place: Path) -> None:
    assert named in refused(["train", "recipe.yaml", change, "--out", "out"], place)
    if (change, named) in RECIPE_CHANGES:
        assert named in refused(["prepare", "recipe.yaml", change, "--out", "out"], place)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"- 1", b"[" * 500, b"!!python/object:os.system {}", None])
def test_files_that_are_no_recipe(content: bytes | None, place: Path) -> None:
    if content is not None:
        (place / "bad.yaml").write_bytes(content)
    for command in (["train"], ["prepare"], ["plan", "--gpus", 2]):
        refused([*command, "bad.yaml", "--out", "out"], place)


OPTIONS: list[tuple[str, Sequence[str], str]] = [
    ("train", ["--workers", "0"], "workers must be at least 1"), ("train", ["--init-from", "none"], "none"),
    ("prepare", ["--workers", "-1"], "workers must be at least 1"), ("prepare", ["--workers", "x"], "--workers"),
    ("plan", ["--gpus", "0"], "gpus"), ("plan", ["--gpus", HUGE], HUGE), ("plan", ["--mfu", "nan"], "mfu"),
    ("plan", ["--gpu", "abacus"], "abacus"), ("plan", ["--mechanisms", "lstm"], "lstm"),
    ("export", ["--step", "9"], "step 9"), ("export", ["--step", "-1"], "step -1"), ("export", ["--dtype", "x"], "'x'"),
    ("eval run", ["--tasks", "x"], "'x'"), ("eval run", ["--device", "abacus"], "no device 'abacus'"),
    ("eval run", ["--dtype", "x"], "'x'"), ("eval run", ["--limit", "0"], "0"), ("eval run", ["--limit", "-1"], "-1"),
    ("eval run", ["--batch-size", "0"], "0"), ("eval run", ["--max-length", "0"], "0"),
    ("eval run", ["--seed", "-1"], "-1"), ("eval run", ["--data", "none"], "none"),
    ("eval run", ["--cache", "file"], "file"), ("eval run", ["--tasks", "vt", "--lengths", HUGE], HUGE),
    ("eval table", ["--baseline", "none"], "'none'"),
    ("experiment", ["--size", "x"], "'x'"), ("experiment", ["--mechanisms", "lstm"], "'lstm'"),
    ("experiment", ["--phases", ""], "phases"), ("experiment", ["--seeds", "-1"], "seeds"),
    ("experiment", ["--seeds", HUGE], HUGE), ("experiment", ["--seeds", ""], "seeds"),
    ("experiment", ["--variants", "x"], "'x'"), ("experiment", ["--learning-rates", "nan"], "learning_rates"),
    ("experiment", ["--length", "nan"], "length"), ("experiment", ["--length", "inf"], "length"),
    ("experiment", ["--speed", "0"], "--speed"), ("experiment", ["--speed", "nan"], "--speed"),
    ("experiment", ["--recipes", "none"], "none"), ("experiment", ["--runs", "file"], "file"),
    ("experiment", ["data.context=0"], "context must be positive"),
    ("reproduce", ["--scale", "x"], "'x'"), ("reproduce", ["--scale", "paper", "--gpus", "0"], "0"),
    ("reproduce", ["--scale", "paper", "--gpus", "12"], "12"),
    ("reproduce", ["--scale", "paper", "--gpu", "abacus"], "'abacus'"),
    ("report", ["none"], "none"), ("report", ["file"], "file"), ("report", ["--committed", "none"], "none"),
    ("inspect", ["--tokens", "0"], "--tokens"), ("inspect", ["x"], "'x'"), ("inspect", ["a="], "'a='"),
    ("inspect", ["IHA=run/export"], "two models"), ("inspect", ["a=evaluation"], "evaluation"),
    ("inspect", ["a=llama"], "llama"), ("inspect", ["--text", ""], "no tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words", "named"), OPTIONS, ids=lambda part: str(part)[:40])
def test_options(command: str, words: Sequence[str], named: str, place: Path) -> None:
    assert named in refused([*COMMANDS[command], *words, "--out", "out"], place)


def _damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "other":  # a record of another kind, a file of another run
        path.write_text(json.dumps({"schema": 1, "kind": "other"}))
    else:
        path.write_text(how)


DAMAGE = [
    ("export", "run/config.json", ["cut", "missing", "[]", '{"hidden_size": NaN}']),
    ("export", "run/tokenizer.json", ["cut", "missing", "other"]),
    ("export", "run/checkpoints/step-00000001/state.json", ["cut", "[]", "{}"]),
    ("train", "run/run.json", ["cut", "other", "[]"]),
    ("eval table", "evaluation/eval.json", ["cut", "missing", "other", "[]", "null"]),
    ("eval score", "evaluation/eval.json", ["cut", "missing", "other", "[]"]),
    ("eval run", "run/export/config.json", ["cut", "missing", "[]", '{"model_type": "iha", "hidden_size": -1}']),
    ("eval run", "run/export/model.safetensors", ["cut", "missing", "{}"]),
    ("eval run", "run/export/tokenizer.json", ["cut", "[]"]),
    ("inspect", "run/export/config.json", ["cut", "missing", "[]"]),
    ("inspect", "run/export/model.safetensors", ["cut", "missing", "{}"]),
    ("report", "evaluation/eval.json", ["cut", "other"]),
]


@pytest.mark.parametrize(("command", "file", "ways"), DAMAGE, ids=lambda part: str(part)[:40])
def test_damaged_files(command: str, file: str, ways: list[str], place: Path) -> None:
    whole = (place / file).read_bytes()
    arguments = {
        "train": ["train", "recipe.yaml", "--out", "run"],
        "eval score": ["eval", "score", "evaluation"],
        "report": ["report", "evaluation", "--committed", "evaluation", "--out", "out"],
    }.get(command) or [*COMMANDS[command], "--out", "out"]
    for how in ways:
        (place / file).write_bytes(whole)
        _damage(place / file, how)
        said = refused(arguments, place)
        assert any(part in said for part in Path(file).parts), (how, said)
