"""Files that are whole at any moment, whoever is killed while they are written."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor


def write(path: Path, content: str | bytes) -> Path:
    """Write a file so that a reader sees the old or the new one and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


class Lines:
    """A file of JSON lines that only grows; processes that write to it wait for each other.

    A line that a killed process did not finish is no line, and is cut off when the file is opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)

    def read(self) -> list[dict[str, Any]]:
        return read_lines(self.path)

    def cut(self, last: int) -> None:
        """Take away the lines of steps after ``last``, which are to be done again."""
        lines = self.read()
        kept = [line for line in lines if line["step"] <= last]
        if len(kept) < len(lines):
            write(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def append(self, line: Mapping[str, Any], *, unless: Callable[[Mapping[str, Any]], bool] | None = None) -> None:
        """Add a line, ``unless`` it is so of one that is there."""
        content = (json.dumps(line) + "\n").encode()
        with self.path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if unless is not None and any(map(unless, self.read())):
                return
            file.write(content)
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The finished lines of a file that another process may be writing to; raises ValueError where one is damaged."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_line(path, number, line) for number, line in enumerate(whole.splitlines(), 1)]


def _line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:  # also of bytes that are no text
        raise ValueError(f"{path}: line {number} is damaged: {error}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: line {number} is damaged: {found!r} has no names.")
    return found


# States ------------------------------------------------------------------------------------------------------------
# Numbers, texts and tensors in lists and dictionaries: structure as JSON, tensors beside it, nothing pickled.


def save_state(path: Path, state: Any) -> None:
    """Write a state, such as a dictionary of ``state_dict()``s of modules and optimizers."""
    tensors: dict[str, Tensor] = {}
    structure = _packed(state, tensors)
    write(path, save(tensors, metadata={"structure": json.dumps(structure)}))


def load_state(path: Path) -> Any:
    """What `save_state` wrote; raises ValueError where the file is something else."""
    try:
        with safe_open(path, "pt") as file:
            structure = json.loads((file.metadata() or {})["structure"])
            return _unpacked(structure, file.get_tensor)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: this is no checkpoint: {error}.") from None


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"items": [[_packed(k, tensors), _packed(v, tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_packed(v, tensors) for v in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"softly_lab: a {type(value).__name__} can't be part of a checkpoint.")


def _unpacked(value: Any, tensor: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "items":
        return {_unpacked(k, tensor): _unpacked(v, tensor) for k, v in content}
    made = [_unpacked(v, tensor) for v in content]
    return tuple(made) if kind == "tuple" else made
