"""Random programs against a judge that knows nothing of the engine: it runs the plain function once for every path.

The judge's numbers answer a comparison by an object that, when Python asks for its truth, follows a list of decisions
and multiplies the probability of each.
"""

import linecache
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import softly

STEEPNESS = 1.5


class Judge:
    """Enumerates the paths of a plain function of numbers."""

    def __init__(self):
        self.pending = [[]]

    def expectation(self, function, *values):
        total, mass, paths = 0.0, 0.0, 0
        while self.pending:
            paths += 1
            assert paths < 5000
            self.path, self.taken, self.p = self.pending.pop(), [], 1.0
            result = function(*(Perturbed(v, self) for v in values))
            total += self.p * (result.value if isinstance(result, Perturbed) else result)
            mass += self.p
        assert math.isclose(mass, 1.0)
        return total

    def decide(self, p):
        step = len(self.taken)
        if step >= len(self.path):
            self.pending.append([*self.taken, False])
        way = self.path[step] if step < len(self.path) else True
        self.taken.append(way)
        self.p *= p if way else 1 - p
        return way


class Answer:
    def __init__(self, p, judge):
        self.p, self.judge = p, judge

    def __bool__(self):
        return self.judge.decide(self.p)


def logistic(x):
    return 1 / (1 + math.exp(-STEEPNESS * x))


class Perturbed:
    """A number whose comparisons are uncertain."""

    def __init__(self, value, judge):
        self.value, self.judge = value, judge

    def other(self, other):
        return other.value if isinstance(other, Perturbed) else other

    def __add__(self, other):
        return Perturbed(self.value + self.other(other), self.judge)

    def __sub__(self, other):
        return Perturbed(self.value - self.other(other), self.judge)

    def __rsub__(self, other):
        return Perturbed(self.other(other) - self.value, self.judge)

    def __mul__(self, other):
        return Perturbed(self.value * self.other(other), self.judge)

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other):
        return Answer(logistic(self.other(other) - self.value), self.judge)

    def __gt__(self, other):
        return Answer(logistic(self.value - self.other(other)), self.judge)


NAMES = ("x", "y", "a", "b")


@st.composite
def expressions(draw):
    left, right = draw(st.sampled_from(NAMES)), draw(st.sampled_from((*NAMES, "0.5", "2")))
    return f"{left} {draw(st.sampled_from('+-*'))} {right}"


@st.composite
def conditions(draw):
    relaxed = draw(st.sampled_from(NAMES[:2]))
    return f"{relaxed} {draw(st.sampled_from('<>'))} {draw(st.sampled_from((*NAMES[2:], '0.3')))}"


@st.composite
def blocks(draw, depth, loop):
    lines = []
    for _ in range(draw(st.integers(1, 2))):
        kinds = ["assign", "assign", "return"]
        if depth > 0:
            kinds += ["if", "if", "for"]
        if loop:
            kinds += ["break", "continue"]
        match draw(st.sampled_from(kinds)):
            case "assign":
                lines.append(f"{draw(st.sampled_from(NAMES))} = {draw(expressions())}")
            case "return":
                lines.append(f"return {draw(expressions())}")
                break
            case "break":
                lines.append("break")
                break
            case "continue":
                lines.append("continue")
                break
            case "if":
                lines.append(f"if {draw(conditions())}:")
                lines += [f"    {line}" for line in draw(blocks(depth - 1, loop))]
                if draw(st.booleans()):
                    lines.append("else:")
                    lines += [f"    {line}" for line in draw(blocks(depth - 1, loop))]
            case "for":
                lines.append("for _ in range(2):")
                lines += [f"    {line}" for line in draw(blocks(depth - 1, True))]
    return lines


@st.composite
def programs(draw):
    body = draw(blocks(2, False))
    return "\n".join(["a = x * 0.5", "b = 1", *body, "return a + b"])


def build(body, name):
    source = "def program(x, y):\n" + "\n".join(f"    {line}" for line in body.splitlines()) + "\n"
    filename = f"<{name} {hash(source)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace = {"unmerged": softly.algorithms.unmerged}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["program"]


VALUES = ((0.4, -0.7), (-0.2, 0.9))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs())
def test_unmerged_programs_are_exact(body):
    plain = build(body, "plain")
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    relaxed = softly.relax(build(f"with unmerged():\n{indented}", "relaxed"), steepness=STEEPNESS, tolerance=0.0)
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*VALUES, strict=True))
    expected = [Judge().expectation(plain, *values) for values in VALUES]
    torch.testing.assert_close(relaxed(x, y), torch.tensor(expected, dtype=torch.float64))


NESTED = {
    "jumps out of a nest": """
for _ in range(3):
    if x > 0.3:
        if y > 0.1:
            break
        return 7
    if y < 0.2:
        continue
    return 3
return 5
""",
    "a search": """
n = 0
for limit in [0.2, 0.5, 1.0]:
    if x < limit:
        return n
    n += 1
return n
""",
    "a chain": """
if x < 0:
    return 1
elif y < 0:
    return 2
elif x > y:
    return 3
return 4
""",
    "a loop that runs a while": """
n = 0
while x > n:
    n += 1
    if n > 5:
        break
return n
""",
}


@pytest.mark.parametrize("name", NESTED)
def test_merging_costs_nothing_where_nothing_follows_that_depends_on_it(name):
    plain = build(NESTED[name], name)
    relaxed = softly.relax(plain, steepness=STEEPNESS, tolerance=0.0)
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*VALUES, strict=True))
    expected = [Judge().expectation(plain, *values) for values in VALUES]
    torch.testing.assert_close(relaxed(x, y), torch.tensor(expected, dtype=torch.float64))


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs())
def test_hard_and_steep_programs_are_plain_python(body):
    plain = build(body, "plain")
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*VALUES, strict=True))
    expected = torch.tensor([float(plain(*values)) for values in VALUES], dtype=torch.float64)
    torch.testing.assert_close(softly.relax(plain, hard=True)(x, y), expected)
    torch.testing.assert_close(softly.relax(plain, steepness=1e9)(x, y), expected)
