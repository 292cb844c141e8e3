"""Random straight-line programs of numbers, an array and a list, as source code."""

import random

NAMES = ("a", "b", "c", "x", "y")


class Writer:
    """Writes one program; what it writes follows from its seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self, names, depth=0):
        r, inner = self.random, lambda: self.number(names, depth + 1)
        kind = r.random()
        if depth > 2 or kind < 0.25:
            return r.choice(names)
        if kind < 0.35:
            return repr(round(r.uniform(-2, 2), 2))
        if kind < 0.45:
            return f"xs[{r.randint(-3, 2)}]"
        if kind < 0.7:
            return f"({inner()} {r.choice('+-*')} {inner()})"
        if kind < 0.75:
            return f"({inner()} / (1.5 + abs({inner()})))"
        if kind < 0.85:
            return f"{r.choice(('min', 'max'))}({inner()}, {inner()})"
        if kind < 0.9:
            return f"abs({inner()})"
        if kind < 0.95:
            return f"({inner()} if {self.condition(names, depth + 1)} else {inner()})"
        return f"math.tanh({inner()})"

    def condition(self, names, depth=0):
        r, inner = self.random, lambda: self.condition(names, depth + 1)
        kind = r.random()
        if kind < 0.6 or depth > 2:
            return f"{self.number(names, 2)} {r.choice(('<', '>', '<=', '>='))} {self.number(names, 2)}"
        if kind < 0.9:
            return f"({inner()} {'and' if kind < 0.75 else 'or'} {inner()})"
        return f"(not {inner()})"

    def block(self, names, indent=1, depth=0, loop=False):
        r, pad, lines = self.random, "    " * indent, []
        for _ in range(r.randint(1, 3)):
            kind = r.random()
            if kind < 0.45:
                lines.append(f"{pad}{r.choice('abc')} {'=' if kind < 0.35 else '+='} {self.number(names)}")
            elif kind < 0.55:
                lines.append(f"{pad}xs[{r.randint(0, 2)}] = {self.number(names)}")
            elif kind < 0.8 and depth < 3:
                lines += [f"{pad}if {self.condition(names)}:", *self.block(names, indent + 1, depth + 1, loop)]
                if r.random() < 0.5:
                    lines += [f"{pad}else:", *self.block(names, indent + 1, depth + 1, loop)]
            elif kind < 0.88 and depth < 2:
                lines.append(f"{pad}for i in range({r.randint(1, 3)}):")
                lines += self.block((*names, "i"), indent + 1, depth + 1, True)
            elif kind < 0.91 and loop:
                lines.append(pad + r.choice(("break", "continue")))
            elif kind < 0.94 and depth:
                lines.append(f"{pad}return {self.number(names)}, b")
            elif not depth:
                lines.append(f"{pad}ys.append({self.number(names)})")
            else:
                lines.append(f"{pad}c = c * 0.5")
        return lines


def program(seed):
    """The source of a function ``program_SEED(x, y, xs)``, of two numbers and an array of three."""
    head = [f"def program_{seed}(x, y, xs):", "    a, b, c = 0.5, x, y * 2", "    ys = [x, y]"]
    return "\n".join(["import math", "", *head, *Writer(seed).block(NAMES), "    return a + b, c + sum(ys)", ""])
