"""The task files as lm-eval itself runs them."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lm_eval")
pytest.importorskip("math_verify")

import jinja2
import lm_eval
import yaml
from jailing import jailed
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from material import byte_tokenizer
from stand_ins import Chance, Oracle

from iha.evaluate import gsm8k, harness, math500, programs
from iha.evaluate.protocol import Source
from iha.evaluate.run import evaluate

TASKS = {task.name: task for task in [*gsm8k.TASKS, *math500.TASKS, *programs.TASKS]}

ROWS = {
    "gsm8k": [{"question": f"What is {n} + {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"} for n in range(7)],
    "math500": [{"problem": f"What is ${n}^2$?", "solution": "", "answer": str(n * n)} for n in range(3)],
    "mbpp": [
        {
            "task_id": n,
            "text": f"Add {n}.",
            "code": f"def add(x):\n    return x + {n}",
            "test_setup_code": "",
            "test_list": [f"assert add({x}) == {x + n}" for x in range(3)],
        }
        for n in range(1, 14)
    ],
    "humaneval": [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f'def times(x):\n    """{n} times x"""\n',
            "entry_point": "times",
            "canonical_solution": f"    return {n} * x\n",
            "test": f"def check(candidate):\n    assert candidate(2) == {2 * n}\n",
        }
        for n in range(2, 4)
    ],
}


@pytest.fixture
def data(tmp_path) -> Path:
    """Small files in the published layouts."""
    for task in TASKS.values():
        for file in task.files.values():
            path = tmp_path / "data" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            content = "\n".join(json.dumps(row) for row in ROWS[path.parent.name]).encode()
            path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return tmp_path / "data"


def local_files(task, data: Path) -> dict[str, str]:
    return {split: str(data / file) for split, file in task.files.items()}


@pytest.fixture
def local(tmp_path, data) -> Path:
    """Task files for local data, as docs/evaluation.md shows: two lines on top of ours."""
    folder = tmp_path / "local"
    folder.mkdir()
    for name, task in TASKS.items():
        content = {
            "include": str(harness.TASK_FILES / f"{task.task_file}.yaml"),
            "task": f"local_{name}",
            "dataset_path": "json",
            "dataset_name": None,
            "dataset_kwargs": {"data_files": local_files(task, data)},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_file_and_task_agree(name, data):
    task = TASKS[name]
    files = {split: Path(file) for split, file in local_files(task, data).items()}
    config = harness.load(task.task_file, data_files=files).config
    options = config.generation_kwargs
    assert config.repeats == task.decoding.samples == config.filter_list[0]["filter"][0]["k"]
    assert options["temperature"] == task.decoding.temperature
    assert options["do_sample"] == (task.decoding.temperature > 0)
    assert tuple(metric["metric"] for metric in config.metric_list) == task.metrics
    assert bool(config.unsafe_code) == task.runs_code
    assert config.num_fewshot == (0 if name.endswith("sft") or name == "humaneval" else 5)


class Function:
    """Stands for lm-eval's !function, which is not needed here."""


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!function", lambda *_: Function())


@pytest.mark.parametrize(
    ("ours", "theirs"), [("gsm8k", "gsm8k/gsm8k"), ("mbpp", "mbpp/mbpp"), ("humaneval", "humaneval/humaneval")]
)
def test_prompts_are_lm_evals(ours, theirs, data):
    """Of the question itself: which examples stand before it is our choice."""
    folder = Path(lm_eval.__file__).parent / "tasks"
    config = yaml.load((folder / f"{theirs}.yaml").read_text(), Loader)
    files = {split: Path(file) for split, file in local_files(TASKS[ours], data).items()}
    task = harness.load(TASKS[ours].task_file, data_files=files)
    for doc in task.test_docs():
        template = jinja2.Environment(keep_trailing_newline=True).from_string(config["doc_to_text"])
        assert task.doc_to_text(doc) == template.render(**doc)


class Answers(LM):
    """Knows the answers, or answers the same nonsense to everything."""

    def __init__(self, answers: dict[str, str] | None) -> None:
        super().__init__()
        self.answers = answers

    def generate_until(self, requests, disable_tqdm=False):
        if self.answers is None:
            return ["nonsense"] * len(requests)
        return [
            next(answer for end, answer in self.answers.items() if request.args[0].endswith(end))
            for request in requests
        ]

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def answers() -> dict[str, str]:
    """By how the prompt ends."""
    found = {}
    for row in ROWS["gsm8k"]:
        found[f"Question: {row['question']}\nAnswer:"] = row["answer"]
        found[f"{row['question']}\nPlease reason step by step, and put your final answer within \\boxed{{}}."] = row[
            "answer"
        ]
    for row in ROWS["math500"]:
        found[f"Problem:\n{row['problem']}\n\nSolution:"] = f"\\boxed{{{row['answer']}}}"
        found[f"{row['problem']}\nPlease reason step by step, and put your final answer within \\boxed{{}}."] = row[
            "answer"
        ]
    for row in ROWS["mbpp"]:
        found["\n".join(row["test_list"]) + "\n[BEGIN]\n"] = row["code"]
        found["\n".join(row["test_list"]) + "\n\nWrite the code in one ```python block."] = (
            f"```python\n{row['code']}\n```"
        )
    for row in ROWS["humaneval"]:
        found[row["prompt"]] = row["canonical_solution"]
    return found


def lm_eval_scores(oracle: LM, local: Path, tasks: list[str], **options) -> dict[str, float]:
    manager = TaskManager(include_path=str(local), include_defaults=False)
    results = lm_eval.simple_evaluate(
        oracle, tasks=tasks, task_manager=manager, bootstrap_iters=0, cache_requests=False, **options
    )["results"]
    return {
        f"{task} {key.removesuffix(',all')}": value
        for task in tasks
        for key, value in results[task].items()
        if key.endswith(",all") and "stderr" not in key
    }


@jailed
def test_an_oracle_gets_everything_right_in_lm_eval(local):
    tasks = [f"local_{name}" for name in TASKS]
    scores = lm_eval_scores(Answers(answers()), local, tasks, confirm_run_unsafe_code=True)
    assert scores == {f"local_{name} {metric}": 1.0 for name, task in TASKS.items() for metric in task.metrics}


@jailed
@pytest.mark.parametrize(("engine", "score"), [(Oracle(), 100.0), (Chance(), 0.0)])
def test_an_oracle_gets_everything_right_in_our_own_run_and_chance_nothing(engine, score, data, tmp_path):
    source = Source(data=data, limit=2)
    record = evaluate(
        engine, list(TASKS.values()), tmp_path / "out", model="m", source=source, command="", allow_code=True
    )
    scores = {name: record.results[name]["metrics"] for name in TASKS}
    assert scores == {name: dict.fromkeys(task.metrics, score) for name, task in TASKS.items()}


@jailed
def test_nonsense_gets_nothing_right_in_lm_eval(local):
    tasks = ["local_gsm8k", "local_math500", "local_mbpp", "local_humaneval"]
    scores = lm_eval_scores(Answers(None), local, tasks, confirm_run_unsafe_code=True)
    assert set(scores.values()) == {0.0}


def test_lm_eval_runs_code_only_when_it_is_told_to(local):
    with pytest.raises(ValueError, match="unsafe"):
        lm_eval_scores(Answers(None), local, ["local_mbpp"])


@jailed
@pytest.mark.slow
def test_the_lm_eval_command(local, tmp_path):
    """From outside, with a model of its own, as a user would call it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    byte_tokenizer().save_pretrained(tmp_path / "model")
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        eos_token_id=257,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    arguments = ["--model", "hf", "--model_args", f"pretrained={tmp_path / 'model'}", "--device", "cpu", "--limit", "2"]
    arguments += ["--include_path", str(local), "--tasks", "local_gsm8k,local_humaneval", "--confirm_run_unsafe_code"]
    arguments += ["--gen_kwargs", "max_gen_toks=8", "--output_path", str(tmp_path / "out")]
    run = subprocess.run(
        [sys.executable, "-m", "lm_eval", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    (file,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(file.read_text())["results"]
    assert results["local_gsm8k"]["EM,all"] == 0
    assert results["local_humaneval"]["P@1,all"] == 0
