"""Circuits as straight-line C: a 64-bit word for 64 examples, a statement a gate, and ripple counters for the classes.

This is how difflogic runs its networks. gcc -O1 takes a minute or more for 48,000 gates.
"""

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

_GATES = (
    "0", "{a} & {b}", "{a} & ~{b}", "{a}", "~{a} & {b}", "{b}", "{a} ^ {b}", "{a} | {b}",
    "~({a} | {b})", "~({a} ^ {b})", "~{b}", "{a} | ~{b}", "~{a}", "~{a} | {b}", "~({a} & {b})", "~0ULL",
)  # fmt: skip

_FRAME = """
#include <stdint.h>
#include <stddef.h>
static void gates(const uint64_t *x, uint64_t *y) {{
{gates}
}}
void predict(const uint8_t *x, int64_t *best, size_t blocks) {{
    static uint64_t in[{inputs}], out[{outputs}];
    for (size_t block = 0; block < blocks; ++block) {{
        for (size_t i = 0; i < {inputs}; ++i) {{
            uint64_t word = 0;
            for (size_t e = 64; e-- > 0;) word = word << 1 | x[(64 * block + e) * {inputs} + i];
            in[i] = word;
        }}
        gates(in, out);
        uint64_t count[{k}][{bits}] = {{0}};
        for (size_t c = 0; c < {k}; ++c)
            for (size_t o = 0; o < {group}; ++o) {{
                uint64_t carry = out[c * {group} + o];
                for (size_t b = 0; b < {bits}; ++b) {{
                    const uint64_t before = count[c][b];
                    count[c][b] = before ^ carry;
                    carry &= before;
                }}
            }}
        for (size_t e = 0; e < 64; ++e) {{
            int most = -1;
            for (size_t c = 0; c < {k}; ++c) {{
                int number = 0;
                for (size_t b = 0; b < {bits}; ++b) number |= (int)(count[c][b] >> e & 1) << b;
                if (number > most) most = number, best[64 * block + e] = (int64_t)c;
            }}
        }}
    }}
}}
"""


def source(num_inputs: int, layers: list[tuple[np.ndarray, np.ndarray]], k: int) -> str:
    """The program of layers of (gates, wires)."""
    names, lines = [f"x[{i}]" for i in range(num_inputs)], []
    for number, (gates, wires) in enumerate(layers):
        above = []
        for i, (gate, a, b) in enumerate(zip(gates.tolist(), *wires.tolist(), strict=True)):
            above.append(f"v{number}_{i}")
            lines.append(f"const uint64_t {above[-1]} = {_GATES[gate].format(a=names[a], b=names[b])};")
        names = above
    lines += [f"y[{i}] = {name};" for i, name in enumerate(names)]
    group = len(names) // k
    return _FRAME.format(
        gates="\n".join(lines), inputs=num_inputs, outputs=len(names), k=k, group=group, bits=group.bit_length()
    )


def compile_predict(
    num_inputs: int, layers: list[tuple[np.ndarray, np.ndarray]], k: int
) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """The class of every row of bits, for a multiple of 64 rows; and the seconds that gcc took."""
    with tempfile.TemporaryDirectory() as folder:
        program, library = Path(folder, "net.c"), Path(folder, "net.so")
        program.write_text(source(num_inputs, layers, k))
        started = time.perf_counter()
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, program], check=True)
        seconds = time.perf_counter() - started
        function = ctypes.CDLL(str(library)).predict
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def predict(x: np.ndarray) -> np.ndarray:
        best = np.empty(len(x), dtype=np.int64)
        function(x.ctypes.data, best.ctypes.data, len(x) // 64)
        return best

    return predict, seconds
