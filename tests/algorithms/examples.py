"""What the tests of relaxed functions share: two variables, how probable x > y is, and a count of operations."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import softly

X = torch.tensor([-1.0, 0.3, 2.0], dtype=torch.float64)
Y = torch.tensor([0.5, 0.1, 1.0], dtype=torch.float64)
P = torch.sigmoid(2.0 * (X - Y))  # of x > y


def relax(**options):
    return softly.relax(**{"steepness": 2.0, **options})


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype).expand_as(actual))


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.append(func)
        return func(*args, **(kwargs or {}))
