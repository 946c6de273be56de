"""The tasks by name."""

from collections.abc import Sequence

from iha.evaluate import gsm8k, math500, programs
from iha.evaluate.protocol import Task
from iha.evaluate.ruler.settings import MULTI_KEY, TASK_NAMES
from iha.evaluate.ruler.tasks import RulerTask

RULER_GROUPS = {"ruler": TASK_NAMES, "ruler_multikey": MULTI_KEY}


def fixed_tasks() -> dict[str, Task]:
    """All but RULER, whose tasks have a length."""
    tasks: list[Task] = [*gsm8k.TASKS, *math500.TASKS, *programs.TASKS]
    return {task.name: task for task in tasks}


def choose(names: Sequence[str], lengths: Sequence[int] = ()) -> list[Task]:
    """Tasks by their names, by RULER's names (at each of the lengths), or by the suites' names."""
    chosen: dict[str, Task] = {}
    for name in names:
        for task in _choose(name, lengths):
            chosen[task.name] = task
    return list(chosen.values())


def by_name(name: str) -> Task:
    """The task that wrote results under this name."""
    setting, _, length = name.removeprefix("ruler_").rpartition("_")
    if name.startswith("ruler_") and setting in TASK_NAMES and length.isdigit():
        return RulerTask(setting, int(length))
    tasks = fixed_tasks()
    if name not in tasks:
        known = ", ".join([*SUITES, *RULER_GROUPS, *tasks])
        raise ValueError(f"no task or suite is called {name!r}; there are {known}, RULER's {', '.join(TASK_NAMES)}")
    return tasks[name]


SUITES = {
    "pretrain": ("gsm8k", "gsm8k_maj5", "math500", "mbpp", "humaneval"),
    "sft": ("gsm8k_sft", "math500_sft", "mbpp_sft"),
}


def _choose(name: str, lengths: Sequence[int]) -> list[Task]:
    if name in SUITES:
        return [by_name(task) for task in SUITES[name]]
    settings = RULER_GROUPS.get(name) or ([name] if name in TASK_NAMES else None)
    if settings is None:
        return [by_name(name)]
    if not lengths:
        raise ValueError(f"{name} needs --lengths, e.g. --lengths 4096,8192,16384")
    return [RulerTask(setting, length) for length in lengths for setting in settings]
