"""Functions that the YAML files in this directory call by `!function`, for `iha eval` and for `lm_eval`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iha.evaluate import gsm8k as gsm8k_tasks
from iha.evaluate import math500 as math500_tasks
from iha.evaluate import programs
from iha.evaluate.protocol import Question

_TASKS = {task.name: task for task in [*gsm8k_tasks.TASKS, *math500_tasks.TASKS, *programs.TASKS]}


def _results(name: str) -> Callable[[dict[str, Any], Sequence[Sequence[str]]], dict[str, float]]:
    """lm-eval's process_results: the metrics of one question, from the samples that the filter take_first_k left."""
    task = _TASKS[name]

    def process_results(doc: dict[str, Any], results: Sequence[Sequence[str]]) -> dict[str, float]:
        question = Question("", "", doc.get("answer"), max_new_tokens=1, meta={"doc": doc})
        return task.score(task.judge([question], [results[0]])[0])

    return process_results


gsm8k = _results("gsm8k")
gsm8k_maj5 = _results("gsm8k_maj5")
gsm8k_sft = _results("gsm8k_sft")
math500 = _results("math500")
math500_sft = _results("math500_sft")
mbpp = _results("mbpp")
mbpp_sft = _results("mbpp_sft")
humaneval = _results("humaneval")


# Prompts are functions: lm-eval recompiles a template for every question and example, which takes a minute for GSM8K.

REASON = "Please reason step by step, and put your final answer within \\boxed{}."


def gsm8k_text(doc: Mapping[str, Any]) -> str:
    return f"Question: {doc['question']}\nAnswer:"


def gsm8k_sft_text(doc: Mapping[str, Any]) -> str:
    return f"{doc['question']}\n{REASON}"


def math500_text(doc: Mapping[str, Any]) -> str:
    return f"Problem:\n{doc['problem']}\n\nSolution:"


def math500_sft_text(doc: Mapping[str, Any]) -> str:
    return f"{doc['problem']}\n{REASON}"


def answer(doc: Mapping[str, Any]) -> str:
    text: str = doc["answer"]
    return text


def _mbpp_task(doc: Mapping[str, Any]) -> list[str]:
    task = (
        f"You are an expert Python programmer, and here is your task: {doc['text']} Your code should pass these tests:"
    )
    return [task, "", *doc["test_list"][:3]]


def mbpp_sft_text(doc: Mapping[str, Any]) -> str:
    return "\n".join([*_mbpp_task(doc), "", "Write the code in one ```python block."])


def mbpp_text(doc: Mapping[str, Any]) -> str:
    return "\n".join([*_mbpp_task(doc), "[BEGIN]", ""])


def mbpp_target(doc: Mapping[str, Any]) -> str:
    return f"{doc['code']}\n[DONE]"


def first_five(dataset: Any) -> Any:
    return dataset.select(range(5))


def mbpp_test(dataset: Any) -> Any:
    """The test split, tasks 11 to 510, also when one file holds all splits, as published."""
    return dataset.filter(lambda doc: 11 <= doc["task_id"] <= 510)


def mbpp_examples(dataset: Any) -> Any:
    return dataset.filter(lambda doc: 2 <= doc["task_id"] <= 6)


def math_examples() -> list[Mapping[str, str]]:
    """Written for this project: MATH-500 comes without a training split. All end as Minerva's examples do."""
    examples = [
        (
            "Solve for $x$: $3(x - 2) = x + 8$.",
            "Expanding the left side gives $3x - 6 = x + 8$. Subtracting $x$ from both sides and adding $6$ to both "
            "sides gives $2x = 14$, so $x = \\boxed{7}$.",
            "7",
        ),
        (
            "A bag holds 4 red and 6 blue marbles. Two marbles are drawn at random without replacement. What is the "
            "probability that both are red? Express your answer as a common fraction.",
            "There are $\\binom{10}{2} = 45$ ways to draw two marbles and $\\binom{4}{2} = 6$ ways to draw two red "
            "ones. The probability is $\\frac{6}{45} = \\boxed{\\frac{2}{15}}$.",
            "\\frac{2}{15}",
        ),
        (
            "What is the remainder when $7^{100}$ is divided by $5$?",
            "Modulo $5$ we have $7 \\equiv 2$, and $2^4 = 16 \\equiv 1$. Since $100 = 4 \\cdot 25$, we get $7^{100} "
            "\\equiv (2^4)^{25} \\equiv 1$. The remainder is $\\boxed{1}$.",
            "1",
        ),
        (
            "A right triangle has legs of lengths $6$ and $9$. What is the length of its hypotenuse?",
            "By the Pythagorean theorem the hypotenuse is $\\sqrt{6^2 + 9^2} = \\sqrt{117} = \\sqrt{9 \\cdot 13} = "
            "\\boxed{3\\sqrt{13}}$.",
            "3\\sqrt{13}",
        ),
        (
            "Find all real values of $x$ for which $x^2 - 5x + 4 \\le 0$. Express your answer in interval notation.",
            "The quadratic factors as $(x - 1)(x - 4)$. The product is at most zero exactly when the factors have "
            "opposite signs or one of them is zero, that is for $1 \\le x \\le 4$. The answer is $\\boxed{[1,4]}$.",
            "[1,4]",
        ),
    ]
    ending = "\nFinal Answer: The final answer is ${}$. I hope it is correct."
    return [
        {"problem": problem, "answer": solution + ending.replace("{}", answer)}
        for problem, solution, answer in examples
    ]
