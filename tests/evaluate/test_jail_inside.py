"""What crosses between checker and program, in one process and through the jail."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jailing import jailed, outcome

from iha.evaluate.jail import Outcome
from iha.evaluate.jail_inside import Answers, Handle, ProgramEnded, decode, encode, read_message, verdict, write_message

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.fractions() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def refused(_):
    raise AssertionError("a plain value needs no handle")


@given(PLAIN)
def test_plain_values_survive_json(value):
    found = decode(json.loads(json.dumps(encode(value, refused))), refused)
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value)  # -0.0 and nested types too


@given(st.sets(st.integers() | st.text()))
def test_sets_survive_json(value):
    for kind in (set, frozenset):
        found = decode(json.loads(json.dumps(encode(kind(value), refused))), refused)
        assert found == value
        assert type(found) is kind


def test_subclasses_are_their_base_class():
    """A number that claims to equal everything loses its claim."""

    class Equal(int):
        __eq__ = lambda *_: True  # noqa: E731
        __hash__ = int.__hash__

    found = decode(encode([Equal(3)], refused), refused)
    assert type(found[0]) is int
    assert found != [4]


def test_everything_else_is_a_handle():
    held = []

    def handle(value):
        held.append(value)
        return len(held) - 1

    thing = object()
    assert decode(encode([1, thing], handle), held.__getitem__) == [1, thing]
    assert decode(encode(int, refused), refused) is int
    with pytest.raises(TypeError, match="print is not a type"):
        decode(["type", "print"], refused)


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_messages_come_whole_one_by_one_and_not_too_large(pipe):
    receiving, sending = pipe
    messages = [{"a": "é"}, [], "x" * 30_000]
    for message in messages:
        write_message(sending, message)
    assert [read_message(receiving, 1 << 20) for _ in messages] == messages
    write_message(sending, "x" * 100)
    with pytest.raises(ValueError, match="a message of 102 bytes is larger than 50"):
        read_message(receiving, 50)


def test_the_end_of_a_message_before_its_time_is_the_end():
    receiving, sending = os.pipe()
    os.write(sending, b"00000010half")
    os.close(sending)
    assert read_message(receiving, 100) is None
    os.close(receiving)


class Scripted(Answers):
    """A program whose replies are given beforehand."""

    def __init__(self, *replies):
        super().__init__(0, -1, -1, 1 << 20)
        self.script, self.asked = list(replies), []

    def ask(self, *request):
        self.asked.append(request[0])
        return self.receive(request[0])

    def receive(self, action):
        kind, *rest = self.script.pop(0)
        if kind == "ended":
            raise ProgramEnded(rest[0])
        if kind == "error":
            raise rest[0]
        return rest[0]


@pytest.mark.parametrize(
    ("replies", "tests", "found"),
    [
        ([("value", None), ("value", 4)], ["assert f == 4"], ("passed", "")),
        ([("value", None), ("value", 5)], ["pass", "assert f == 4, 'five'"], ("wrong", "test 1: AssertionError: five")),
        ([("value", None), ("error", KeyError("f"))], ["f"], ("error", "test 0: NameError: name 'f' is not defined")),
        ([("error", SyntaxError("bad"))], ["pass"], ("error", "SyntaxError: bad")),
        ([("ended", "gone")], ["pass"], ("exited", "gone")),
        ([("value", None), ("ended", "gone")], ["pass"], ("exited", "gone")),
    ],
)
def test_verdicts(replies, tests, found):
    assert verdict(Scripted(*replies), ["f"], "", tests) == found


def test_a_handle_equals_only_itself_and_asks_for_the_rest():
    program = Scripted(("value", 7), ("value", 3), ("value", True))
    one, other = Handle(program, 0), Handle(program, 1)
    assert one == one
    assert one != other
    assert (one(2), len(one), 5 in one) == (7, 3, True)
    assert program.asked == ["call", "len", "contains"]
    with pytest.raises(TypeError, match="may not pass a object to the program"):
        Answers.handle(object())


@jailed
def test_values_cross_unchanged():
    values = """
[None, True, False, 0, -7, 10**5000, 1.5, float('inf'), -0.0, 1e-320, 2 - 3j, 'é\\ud800', b'\\x00', bytearray(b'1'),
 [1, [2]], (), (1,), {1, 'a'}, frozenset([2]), {}, {1: [2], (3,): {4}}, range(1, 9, 2)]
"""
    test = f"""
import math
for value in {values.strip()}:
    answer = f(value)
    assert answer == value and type(answer) is type(value), value
assert math.isnan(f(float('nan'))) and math.copysign(1, f(-0.0)) == -1
assert f(None) is None and f(True) is True
"""
    assert outcome("def f(x):\n    return x", (test,)) == Outcome("passed")
    assert outcome(
        f"def f(i):\n    return {values.strip()}[i]", (f"assert [f(i) for i in range(22)] == {values.strip()}",)
    ).passed


@jailed
def test_objects_of_the_program_are_handles():
    code = """
import collections, fractions, decimal
class Node:
    def __init__(self, value):
        self.value, self.children = value, []
    def add(self, child):
        self.children.append(child)
    def __len__(self):
        return 1 + sum(map(len, self.children))
def f(kind):
    return {"class": Node, "counter": collections.Counter("aab"), "iterator": (i * i for i in range(3)),
            "map": map(abs, [-1]), "function": lambda x, y=1: x + y, "fraction": fractions.Fraction(1, 3),
            "decimal": decimal.Decimal("1.10"), "named": collections.namedtuple("P", "x y")(1, 2)}[kind]
"""
    test = """
from fractions import Fraction
Node = f("class")
root, leaf = Node(1), Node(2)
root.add(leaf)
leaf.value = 5
assert len(root) == 2 and root.value == 1 and root.children[0].value == 5 and root.children != []
assert root == root and not root == leaf
assert f("counter") == {"a": 2, "b": 1} and f("named") == (1, 2)
assert list(f("iterator")) == [0, 1, 4] and sorted(f("map")) == [1] and f("map") != [1]
assert f("function")(2, y=3) == 5
assert f("fraction") == Fraction(1, 3) and float(f("decimal")) == 1.1
try:
    f("missing")
    raise SystemExit
except KeyError:
    pass
"""
    assert outcome(code, (test,)) == Outcome("passed")


@jailed
def test_the_setup_is_the_tests_own():
    """The program cannot replace what the benchmark brings along, and the unfinished function is not tested for it."""
    setup = "import math\ndef helper(x):\n    return math.fabs(x)\ndef f(x):\n    '''To be written.'''"
    tests = ("assert helper(f(1)) == 0",)
    assert outcome("def helper(x):\n    return 0\ndef f(x):\n    return 9", tests, setup=setup).status == "wrong"
    assert outcome("def f(x):\n    return -0.0", tests, setup=setup).passed
    assert outcome("", ("assert f(1) is None",), setup=setup).detail == "test 0: NameError: name 'f' is not defined"
