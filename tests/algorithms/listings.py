"""The two listings of chapter 2, in softly's modules or in those of a peer with the same names."""

import types

import torch


def bubble_sort(modules: types.ModuleType, beta: float = 5):
    Algorithm, Input, Output, Var, VarInt = (
        getattr(modules, n) for n in ("Algorithm", "Input", "Output", "Var", "VarInt")
    )
    Let, LetInt, GT, IsTrue = (getattr(modules, n) for n in ("Let", "LetInt", "GT", "IsTrue"))
    If, While, For = (getattr(modules, n) for n in ("If", "While", "For"))
    # fmt: off
    return Algorithm(
        # Define the variables the input corresponds to
        Input('array'),
        # Declare and initialize all differentiable variables
        Var('a',        torch.tensor(0.)),
        Var('b',        torch.tensor(0.)),
        Var('swapped',  torch.tensor(1.)),
        Var('loss',     torch.tensor(0.)),
        # Declare and initialize a hard integer variable (VarInt) for the control flow.
        VarInt('n', lambda array: array.shape[1] - 1),
        # Start a relaxed While loop:
        While(IsTrue('swapped'),
            # Set `swapped` to 0 / False
            Let('swapped', 0),
            # Start an unrolled For loop. Corresponds to `for i in range(n):`
            For('i', 'n',
                # Set `a` to the `i`th element of `array`
                Let('a', 'array', ['i']),
                # Using an inplace lambda expression, we can include computations
                # based on variables to obtain the element at position i+1.
                Let('b', 'array', [lambda i: i+1]),
                # An If-Else statement with the condition a > b
                If(GT('a', 'b'),
                   if_true=[
                       # Set the i+1 th element of array to a
                       Let('array', [lambda i: i + 1], 'a'),
                       # Set the i th element of array to b
                       Let('array', ['i'], 'b'),
                       # Set swapped to 1 / True
                       Let('swapped', 1.),
                       # Increment the loss by 1 using a lambda expression
                       Let('loss', lambda loss: loss + 1.),
                   ]
               ),
            ),
            # Decrement the hard integer variable n by 1
            LetInt('n', lambda n: n-1),
        ),
        # Define what the algorithm should return
        Output('array'),
        Output('loss'),
        # Set the inverse temperature beta
        beta=beta,
    )


def levenshtein(modules: types.ModuleType, beta: float = 5):
    Algorithm, Input, Output, Var = (getattr(modules, n) for n in ("Algorithm", "Input", "Output", "Var"))
    CosineSimilarity, If, For, Let, Min = (getattr(modules, n) for n in ("CosineSimilarity", "If", "For", "Let", "Min"))
    return Algorithm(
        # Define the variables the input corresponds to.
        Input("array_s"),
        Input("array_t"),
        # Declare and initialize all differentiable variables.
        Var("d", lambda array_s, array_t: torch.zeros(array_s.shape[1] + 1, array_t.shape[1] + 1)),
        Var("subs_cost", torch.tensor(0.0)),
        Var("return_d", torch.tensor(0.0)),
        # Initialize the borders of the cost matrix.
        For("i", lambda d: d.shape[1] - 1, Let("d", [lambda i: i + 1, 0], lambda i: i + 1)),
        For("j", lambda d: d.shape[2] - 1, Let("d", [0, lambda j: j + 1], lambda j: j + 1)),
        # Run the dynamic programming algorithm.
        For(
            "i",
            lambda d: d.shape[1] - 1,
            For(
                "j",
                lambda d: d.shape[2] - 1,
                # Differentiable check for equality of two categorical embeddings.
                If(
                    CosineSimilarity(lambda array_s, i: array_s[:, i], lambda array_t, j: array_t[:, j]),
                    if_true=Let("subs_cost", 0),
                    if_false=Let("subs_cost", 1),
                ),
                Let(
                    "d",
                    [lambda i: i + 1, lambda j: j + 1],
                    lambda d, i, j, subs_cost: Min(beta=beta)(
                        d[:, i, j + 1] + 1, d[:, i + 1, j] + 1, d[:, i, j] + subs_cost
                    ),
                ),
            ),
        ),
        # Return the distance and the cost matrix.
        Let("return_d", "d", [lambda d: d.shape[1] - 1, lambda d: d.shape[2] - 1]),
        Output("return_d"),
        Output("d"),
        beta=beta,
    )
    # fmt: on


def algovision() -> types.ModuleType:
    """The peer, with all its names in one module."""
    import importlib

    names = ("core", "conditions", "control_structures", "functions", "instructions")
    together = types.ModuleType("algovision_names")
    for name in names:
        together.__dict__.update(vars(importlib.import_module(f"algovision.{name}")))
    return together
