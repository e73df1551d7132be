"""What `fetch` does with a server of our own on this machine: files one by one, an archive, and whatever goes wrong."""

from __future__ import annotations

import gzip
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from noisette.app.datasets import fetch, load
from noisette.app.datasets.sources import Published, sources
from noisette.errors import InvalidInput
from tests.support.command import Command
from tests.support.helpers import refused
from tests.support.synthetic_datasets import cifar_set, idx_set


class Server(ThreadingHTTPServer):
    """Serves `pages` by their paths, cut to `most` bytes, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.most = 10**9

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Length", str(len(page or b"")))
        self.end_headers()
        self.wfile.write((page or b"")[: self.server.most])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path / "cache"))
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def published(server: Server) -> tuple[Published, dict[str, bytes]]:
    """Files one by one, each as .gz."""
    source, contents, *_ = idx_set()
    type(source).address = server.address + "sets/"
    server.pages = {f"/sets/{name}.gz": gzip.compress(content) for name, content in contents.items()}
    return source, contents


def archived(server: Server, extra: dict[str, bytes] | None = None) -> tuple[Published, dict[str, bytes]]:
    """All of them, and `extra` first, in one .tar.gz."""
    source, contents, _ = cifar_set()
    type(source).address = server.address + "all.tar.gz"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in ((extra or {}) | {f"some-folder/{name}": data for name, data in contents.items()}).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    server.pages = {"/all.tar.gz": stream.getvalue()}
    return source, contents


@pytest.mark.parametrize("make", [published, archived])
def test_what_is_fetched_can_be_loaded(tmp_path: Path, server: Server, make: type) -> None:
    source, contents = make(server)
    with pytest.raises(InvalidInput, match="is missing"):
        load(source.name, tmp_path)
    seen: list[tuple[str, int, int]] = []
    folder = fetch(source.name, tmp_path, lambda *told: seen.append(told))
    assert folder == tmp_path / source.folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents
    data = load(source.name, tmp_path)
    assert torch.equal(data.train_inputs, source.load("", tmp_path).train_inputs)
    assert seen[-1] == (f"{source.name} is complete", len(contents), len(contents))
    assert any(done == total > 0 for label, done, total in seen if label.startswith("downloading"))


def test_what_is_there_is_checked_and_not_fetched_again(tmp_path: Path, server: Server) -> None:
    source, contents = published(server)
    folder = tmp_path / source.folder
    folder.mkdir()
    (folder / "train-labels").write_bytes(contents["train-labels"])
    fetch(source.name, tmp_path)
    assert sorted(server.asked) == [f"/sets/{name}.gz" for name in sorted(contents) if name != "train-labels"]
    fetch(source.name, tmp_path)
    assert len(server.asked) == 3
    (folder / "train-labels").write_bytes(bytes(len(contents["train-labels"])))
    with refused(InvalidInput, "does not hold the bytes"):
        fetch(source.name, tmp_path)
    assert len(server.asked) == 3


def test_of_an_archive_only_what_is_missing_is_written(tmp_path: Path, server: Server) -> None:
    source, contents = archived(server)
    folder = tmp_path / source.folder
    folder.mkdir()
    (folder / "part_1.bin.gz").write_bytes(gzip.compress(contents["part_1.bin"]))
    fetch(source.name, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["part_0.bin", "part_1.bin.gz", "part_2.bin"]


@pytest.mark.parametrize("make", [published, archived])
def test_a_flipped_byte_is_refused(tmp_path: Path, server: Server, make: type) -> None:
    source, _ = make(server)
    for path, page in server.pages.items():
        content = bytearray(gzip.decompress(page))
        content[-1 if make is published else 700] ^= 1  # behind the header of the archive's first file
        server.pages[path] = gzip.compress(bytes(content))
    with refused(InvalidInput, f"{server.address}.* does not hold the bytes that its authors publish"):
        fetch(source.name, tmp_path)
    assert not (tmp_path / source.folder).exists()


@pytest.mark.parametrize("make", [published, archived])
@pytest.mark.parametrize(
    "page",
    [b"", b"<html>sign in</html>", gzip.compress(b"short"), gzip.compress(b"x" * 600)[:-9]],
    ids=["empty", "page", "short", "cut"],
)
def test_something_else_is_refused(tmp_path: Path, server: Server, make: type, page: bytes) -> None:
    source, _ = make(server)
    server.pages = dict.fromkeys(server.pages, page)
    with refused(InvalidInput, "does not unpack|its authors publish"):
        fetch(source.name, tmp_path)
    assert not (tmp_path / source.folder).exists()


@pytest.mark.parametrize("make", [published, archived])
def test_a_bomb_is_not_unpacked(tmp_path: Path, server: Server, make: type) -> None:
    source, _ = make(server)
    server.pages = dict.fromkeys(server.pages, gzip.compress(bytes(10_000_000)))
    with refused(InvalidInput, "more than the|of the .* bytes"):
        fetch(source.name, tmp_path)


@pytest.mark.parametrize("make", [published, archived])
def test_no_more_is_downloaded_than_there_should_be(tmp_path: Path, server: Server, make: type) -> None:
    source, _ = make(server)
    server.pages = dict.fromkeys(server.pages, bytes(8_000_000))
    seen: list[int] = []
    with refused(InvalidInput, "larger than what its authors publish"):
        fetch(source.name, tmp_path, lambda label, done, total: seen.append(done))
    assert max(seen) < 3_000_000, "it stops where it is clear"


def test_a_download_that_breaks_off_is_refused(tmp_path: Path, server: Server) -> None:
    source, _ = published(server)
    server.most = 40
    with refused(InvalidInput, r"broke off after 40 of|cannot be fetched"):
        fetch(source.name, tmp_path)
    assert not (tmp_path / source.folder).exists()


def test_files_that_came_before_a_failure_stay(tmp_path: Path, server: Server) -> None:
    source, contents = published(server)
    del server.pages["/sets/t10k-images.gz"]
    with refused(InvalidInput, r"t10k-images.gz cannot be fetched \(status 404\)"):
        fetch(source.name, tmp_path)
    folder = tmp_path / source.folder
    assert {path.name for path in folder.iterdir()} == {"train-images", "train-labels"}
    server.pages["/sets/t10k-images.gz"] = gzip.compress(contents["t10k-images"])
    fetch(source.name, tmp_path)
    assert len(server.asked) == 3 + 2


def test_without_a_network_it_says_what_to_do_by_hand(tmp_path: Path, server: Server) -> None:
    source, contents = published(server)
    type(source).address = "http://127.0.0.1:1/"
    with pytest.raises(InvalidInput, match=r"train-images.gz cannot be fetched \(connection refused\)") as error:
        fetch(source.name, tmp_path)
    assert str(tmp_path / source.folder) in error.value.hint
    assert all(name in error.value.hint for name in contents)


def test_an_archive_cannot_write_outside(tmp_path: Path, server: Server) -> None:
    outside = {"../../escaped": b"x", "/tmp/noisette-escaped": b"x"}
    source, contents = archived(server, outside)
    below = tmp_path / "deep" / "deeper"
    folder = fetch(source.name, below)
    assert {path.name for path in folder.iterdir()} == set(contents)
    assert not list(tmp_path.rglob("*escaped"))
    assert not Path("/tmp/noisette-escaped").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, server: Server) -> None:
    source, _ = published(server)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be made") as error:
        fetch(source.name, tmp_path / "file")
    assert "--data-root" in error.value.hint


@pytest.mark.parametrize("name", ["digits", "imagenet", "csv:a:b", "csv"])
def test_other_names_cannot_be_fetched(name: str) -> None:
    with refused(InvalidInput, "nothing to fetch"):
        fetch(name)


def test_the_command_fetches(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, contents = published(server)
    assert sources()[source.name].name == source.name
    told = Command(monkeypatch, capsys)("data", "fetch", source.name, "--data-root", tmp_path, "--json").json
    assert told == {"name": source.name, "folder": str(tmp_path / source.folder)}
    assert {path.name for path in (tmp_path / source.folder).iterdir()} == set(contents)
