import pytest

from iha.evaluate.answers import after_thought, final_number, last_boxed, plain_number, program


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She makes 9 * 2 = $<<9*2=18>>18.\n#### 18", "18"),
        ("#### 1,234", "1234"),
        ("#### $70,000", "70000"),
        ("#### -5", "-5"),
        ("#### 18\n\nQuestion: 3 + 4?\n#### 7", "18"),  # the first mark: what follows answers something else
        ("####18", "18"),
        ("The answer is 18.", "18"),
        ("It costs $1,200.50 in all", "1200.5"),
        ("so \\boxed{42} and not 43", "42"),
        ("\\boxed{7} no, \\boxed{x = 8}", "8"),
        ("\\boxed{\\text{none}} 5", "5"),
        ("18.00", "18"),
        ("007", "7"),
        (".50", "0.5"),
        ("-0", "0"),
        ("none", None),
        ("", None),
        ("<think>#### 3 or 4</think>It is 5", "5"),
        (
            "<|begin_of_thought|> \\boxed{1} <|end_of_thought|> <|begin_of_solution|> \\boxed{2} <|end_of_solution|>",
            "2",
        ),
    ],
)
def test_final_number(text, number):
    assert final_number(text) == number


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{1} and \\boxed{2}", "2"),
        ("\\boxed{1} and \\boxed{2", "1"),  # cut off
        ("\\boxed {3}", "3"),
        ("\\fbox{4}", None),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("nothing", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


def test_plain_number_has_one_spelling_per_number():
    assert {plain_number(t) for t in ("1200", "1,200", "$1,200", "1200.0", " 1200 ", "01200")} == {"1200"}
    assert {plain_number(t) for t in ("-3.50", "-3.5", "-$3.5")} == {"-3.5"}


def test_after_thought():
    assert after_thought("a</think>b</think>c") == "c"
    assert after_thought("no thought") == "no thought"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f():\n    return 1", "def f():\n    return 1"),
        ("Here:\n```python\ndef f():\n    return 1\n```\nDone.", "def f():\n    return 1"),
        ("```\nfirst\n```\n```py\nsecond\n```", "second"),
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),  # cut off
        ("<think>```python\nno\n```</think>\n```python\nyes\n```", "yes"),
    ],
)
def test_program(text, code):
    assert program(text) == code
