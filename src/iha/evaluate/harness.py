"""lm-eval's task files as questions: its prompts, few-shot examples and stop strings, word for word.

The same YAML files work from the `lm_eval` command with `--include_path`; `docs/evaluation.md` has the calls.
"""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iha.evaluate.protocol import Question, Source

TASK_FILES = Path(__file__).parent / "tasks"  # what `lm_eval --include_path` takes


def load(
    name: str,
    *,
    include: Path = TASK_FILES,
    data_files: Mapping[str, Path] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """lm-eval's task `name`, reading local JSON files (split to file) when given instead of its Hub dataset."""
    try:
        import datasets
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ValueError(f"this task needs lm-eval: pip install 'iha[eval]' ({error})") from error
    manager = TaskManager(include_path=str(include), include_defaults=False)
    if name not in manager.all_tasks:
        raise ValueError(f"no lm-eval task {name!r} in {include}: it has {', '.join(manager.all_tasks) or 'none'}")
    changes: dict[str, Any] = dict(overrides or {})
    if data_files is not None:
        for path in data_files.values():
            if not path.is_file():
                raise ValueError(f"{name} reads {path}, which does not exist")
        files = {split: str(path) for split, path in data_files.items()}
        changes |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    bars_were_on = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        # A group of one task is how lm-eval overrides settings of a registered task.
        loaded = manager.load({"group": f"{name}_changed", "task": [{"task": name, **changes}]})
    except (OSError, ValueError, ConnectionError) as error:
        raise ValueError(f"{name}: its dataset cannot be read; give local files by --data DIR ({error})") from error
    finally:
        if bars_were_on:
            datasets.enable_progress_bars()
    return loaded["tasks"][name]


def questions(
    name: str,
    source: Source,
    *,
    include: Path = TASK_FILES,
    data_files: Mapping[str, Path] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Question]:
    """The requests that lm-eval builds for a task, the first `source.limit` of them, in the order of its documents."""
    task = load(name, include=include, data_files=data_files, overrides=overrides)
    task.set_fewshot_seed(source.seed)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        task.build_all_requests(limit=source.limit)
    return [_question(task, instance) for instance in task.instances]


def _question(task: Any, instance: Any) -> Question:
    prompt, options = instance.args
    if instance.request_type != "generate_until":
        raise ValueError(f"{instance.task_name} is a {instance.request_type} task; only generate_until is evaluated")
    if "max_gen_toks" not in options:
        raise ValueError(f"{instance.task_name} has no max_gen_toks in its generation_kwargs")
    prefix = task.doc_to_prefix(instance.doc) or ""
    until = options.get("until") or []
    return Question(
        id=str(instance.doc_id),
        prompt=prompt.removesuffix(prefix) if prefix else prompt,
        reference=task.doc_to_target(instance.doc),
        max_new_tokens=options["max_gen_toks"],
        stop=tuple([until] if isinstance(until, str) else until),
        prefix=prefix,
        meta={"doc": dict(instance.doc)},
    )
