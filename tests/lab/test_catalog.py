"""Data is fetched whole or not at all, goes on where it was, and is what its checksum says."""

import functools
import gzip
import hashlib
import http.server
import os
import re
import threading
from pathlib import Path

import pytest

from softly_lab import data
from softly_lab.data import catalog
from softly_lab.data.catalog import File, Set
from softly_lab.data.terrain import TILES

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves CONTENT under any name; knows ranges, and can break off."""

    asked: list = []  # noqa: RUF012
    breaks = False

    def do_GET(self):
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.asked.append(begin)
        if self.path.endswith("missing"):
            return self.send_error(404)
        if begin >= len(CONTENT):
            return self.send_error(416)
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        self.wfile.write(CONTENT[begin : begin + 100_000] if self.breaks else CONTENT[begin:])

    def log_message(self, *_):
        pass


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Server, "asked", [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def made(*mirrors, path="deep/file.bin", sha256=SHA256, **more):
    return Set("things", "Things", "MIT", "nobody", [File(path, len(CONTENT), sha256, mirrors, **more)])


def test_a_file_is_fetched_once_and_checked(address, tmp_path):
    told = []
    folder = catalog.fetch(made(f"{address}/missing", f"{address}/a"), lambda *now: told.append(now))
    assert (folder / "deep" / "file.bin").read_bytes() == CONTENT
    assert told[-1] == ("deep/file.bin", len(CONTENT), len(CONTENT))
    assert [path.name for path in (folder / "deep").iterdir()] == ["file.bin"]
    asked = len(Server.asked)
    catalog.fetch(made(f"{address}/a"))
    assert len(Server.asked) == asked
    (folder / "deep" / "file.bin").write_bytes(b"spoiled")
    catalog.fetch(made(f"{address}/a"))
    assert (folder / "deep" / "file.bin").read_bytes() == CONTENT


def test_what_was_interrupted_goes_on(address, monkeypatch):
    monkeypatch.setattr(Server, "breaks", True)
    for _ in range(5):
        with pytest.raises(FileNotFoundError, match="bytes instead of"):
            catalog.fetch(made(f"{address}/a"))
    assert Server.asked == [0, 100_000, 200_000, 300_000, 400_000]
    monkeypatch.setattr(Server, "breaks", False)
    folder = catalog.fetch(made(f"{address}/a"))
    assert (folder / "deep" / "file.bin").read_bytes() == CONTENT
    assert Server.asked[-1] == 500_000


def test_another_content_is_refused(address):
    with pytest.raises(FileNotFoundError, match="another checksum than 00"):
        catalog.fetch(made(f"{address}/a", sha256="00"))
    assert not list((catalog.kept() / "things" / "deep").iterdir())


def test_gzipped_files_are_known_by_their_content(address):
    folder = catalog.fetch(made(f"{address}/a", path="a.gz", compress=True))
    assert gzip.decompress((folder / "a.gz").read_bytes()) == CONTENT


def test_without_a_mirror_it_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for mirrors in ((), ("http://127.0.0.1:9/a",)):
        with pytest.raises(
            FileNotFoundError, match=r"Put into .*things, .*from nobody:\n  deep/file.bin, 512,000 bytes, sha256 \w+$"
        ):
            catalog.fetch(made(*mirrors))


def test_what_could_not_be_fetched_is_not_there(address, tmp_path, monkeypatch):
    things = made(f"{address}/missing")
    half = Set(
        "half", "Half", "MIT", "nobody", [*made(f"{address}/a").files, *made(f"{address}/missing", path="b").files]
    )
    monkeypatch.setattr(catalog, "sets", lambda: {"things": things, "half": half})
    monkeypatch.delenv("SOFTLY_DATA", raising=False)
    for entry in (things, half):
        with pytest.raises(FileNotFoundError, match="could not be fetched"):
            catalog.fetch(entry)
        assert not data.available(entry.name)
    assert [data.begun(name) for name in ("things", "half")] == [False, True]
    assert data.folder("half") == catalog.kept() / "half"  # of the files that are there, some may be all one wants
    with pytest.raises(
        FileNotFoundError, match=r"^things is not there: SOFTLY_DATA names .* softly data fetch things$"
    ):
        data.folder("things")
    (tmp_path / "mine" / "half").mkdir(parents=True)
    monkeypatch.setenv("SOFTLY_DATA", str(tmp_path / "mine"))
    assert data.folder("half") == catalog.kept() / "half"
    for name in ("b", "deep/file.bin"):
        (tmp_path / "mine" / "half" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "mine" / "half" / name).write_bytes(b"")
    assert data.folder("half") == tmp_path / "mine" / "half"
    assert data.available("half")


def test_all_data_that_experiments_use_is_in_the_catalog():
    asked = re.compile(r"""(?:folder|available)\("([^"]+)"\)""")
    sources = Path(catalog.__file__).parents[1].rglob("*.py")
    assert {name for path in sources for name in asked.findall(path.read_text())} <= set(catalog.sets())
    assert {f"{name}.png" for names in TILES for name in names} == {f.path for f in catalog.get("terrain-tiles").files}


def test_the_catalog():
    for name, entry in catalog.sets().items():
        assert entry.files
        assert entry.licence
        assert entry.name == name
        assert all(len(file.sha256) == 64 and file.bytes > 0 for file in entry.files)
        assert all(mirror.startswith("https://") for file in entry.files for mirror in file.mirrors)
    with pytest.raises(ValueError, match="there is no data set 'mnits'; there are mnist,"):
        catalog.get("mnits")


@pytest.mark.skipif("SOFTLY_DATA" not in os.environ, reason="SOFTLY_DATA names no folder")
def test_the_data_that_is_there_is_that_of_the_catalog():
    for name, entry in catalog.sets().items():
        for file in entry.files:
            assert file.fits(Path(os.environ["SOFTLY_DATA"]) / name / file.path), file.path
