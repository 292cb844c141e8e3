"""What data there is: whose, under which licence, with which checksums, and from where it can be fetched."""

import gzip
import hashlib
import os
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from softly_lab.files import write

TIMEOUT = 20  # seconds without a byte
_PIECE = 1 << 16

# Told of every piece: the file, the bytes that are there, and the bytes there will be.
Watch = Callable[[str, int, int], None]


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes:
        path: Its place in the folder of the set.
        bytes, sha256: Of its content, unpacked if it is gzipped.
        mirrors: Addresses, the first one first.
        compress: Whether the mirrors have it unpacked and we keep it gzipped.
    """

    path: str
    bytes: int
    sha256: str
    mirrors: Sequence[str]
    compress: bool = False

    def fits(self, path: Path) -> bool:
        """Whether a file has the content that it should."""
        try:
            found = path.read_bytes()
            found = gzip.decompress(found) if path.suffix == ".gz" else found
        except (OSError, EOFError):
            return False
        return hashlib.sha256(found).hexdigest() == self.sha256


@dataclass(frozen=True)
class Set:
    """A data set: its name, which is that of its folder, what it is, its licence, whose it is, and its files."""

    name: str
    title: str
    licence: str
    source: str
    files: Sequence[File]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def fetchable(self) -> bool:
        """Whether it can be fetched at all."""
        return any(file.mirrors for file in self.files)

    def complete(self, folder: Path) -> bool:
        """Whether a folder has all files of the set."""
        return all((folder / file.path).is_file() for file in self.files)

    def begun(self, folder: Path) -> bool:
        """Whether a folder has some of them."""
        return any((folder / file.path).is_file() for file in self.files)


@cache
def sets() -> dict[str, Set]:
    """All data sets by their names."""
    text = resources.files("softly_lab.data").joinpath("catalog.toml").read_text(encoding="utf-8")
    return {s["name"]: Set(files=[File(**f) for f in s.pop("file")], **s) for s in tomllib.loads(text)["set"]}


def get(name: str) -> Set:
    if name not in sets():
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(sets())}.")
    return sets()[name]


def kept() -> Path:
    """The folder that fetched data is kept in."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "softly" / "data"


def fetch(data: Set, watch: Watch | None = None) -> Path:
    """Download what is missing of a data set; its folder.

    A file that was interrupted goes on where it was, is checked, and appears under its name only then.
    """
    folder = kept() / data.name
    missing = [file for file in data.files if not file.fits(folder / file.path)]
    if by_hand := [file for file in missing if not file.mirrors]:
        raise _by_hand(data, by_hand, "has no public mirror in this form.")
    for file in missing:
        _download(data, file, folder / file.path, watch or (lambda *_: None))
    return folder


def _download(data: Set, file: File, target: Path, watch: Watch) -> None:
    reasons = []
    for address in file.mirrors:
        partial = target.with_name(f"{target.name}.part")
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            _receive(address, partial, lambda done, total: watch(file.path, done, total))
        except (OSError, urllib.error.URLError) as error:
            reasons.append(f"{address}: {error}")
            continue
        content = partial.read_bytes()
        partial.unlink()
        packed = gzip.compress(content, mtime=0) if file.compress else content
        checked = target.with_name(f".checked-{target.name}")
        try:
            write(checked, packed)
            if not file.fits(checked):
                reasons.append(f"{address}: the file has another checksum than {file.sha256}")
                continue
            checked.replace(target)
            return
        finally:
            checked.unlink(missing_ok=True)
    why = "\n".join(f"  {reason}" for reason in reasons)
    raise _by_hand(data, [file], f"could not be fetched: {file.path}\n{why}")


def _by_hand(data: Set, files: Sequence[File], why: str) -> FileNotFoundError:
    """Which files to put where."""
    lines = (
        f"  {file.path}, {file.bytes:,} bytes{', unpacked' if file.path.endswith('.gz') else ''}, sha256 {file.sha256}"
        for file in files
    )
    return FileNotFoundError(
        f"{data.name} {why}\nPut into {kept() / data.name}, or into a folder {data.name} of the one that SOFTLY_DATA "
        f"names, from {data.source}:\n" + "\n".join(lines)
    )


def _receive(address: str, partial: Path, watch: Callable[[int, int], None]) -> None:
    """Append what is missing of a file; all of it where the server can't do that."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(address, headers={"User-Agent": "softly"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is missing, or it is another file: the checksum will tell
            return
        raise
    with answer, partial.open("ab" if answer.status == 206 else "wb") as file:
        have = have if answer.status == 206 else 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        while piece := answer.read(_PIECE):
            file.write(piece)
            have += len(piece)
            watch(have, total)
        if total and have < total:
            raise OSError(f"{have} bytes instead of {total}")
