from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

from noisette.app.datasets._published_files import cache_folder, check, data_root, locate, read
from noisette.errors import InvalidInput
from tests.support.synthetic_datasets import COMPRESS, describe

CONTENT = np.random.default_rng(7).integers(0, 256, 5000).astype(np.uint8).tobytes()
FILE = describe("numbers.bin", CONTENT)


def stored(folder: Path, raw: bytes, suffix: str) -> Path:
    path = folder / (FILE.name + suffix)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_form_gives_the_contents(tmp_path: Path, suffix: str) -> None:
    path = stored(tmp_path, COMPRESS[suffix](CONTENT), suffix)
    assert locate(FILE, tmp_path) == path
    assert read(FILE, path, tmp_path / "cache") == CONTENT


def test_locate_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / FILE.name).mkdir()
    assert locate(FILE, tmp_path) is None


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_flipped_byte_of_the_contents_is_refused(tmp_path: Path, suffix: str) -> None:
    changed = bytearray(CONTENT)
    changed[4321] ^= 1
    path = stored(tmp_path, COMPRESS[suffix](bytes(changed)), suffix)
    with pytest.raises(InvalidInput, match=r"does not hold the bytes.*authors publish") as error:
        read(FILE, path, tmp_path / "cache")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_no_flipped_bit_of_a_compressed_file_changes_what_is_read(tmp_path: Path, suffix: str) -> None:
    raw = COMPRESS[suffix](CONTENT)
    refused = 0
    for position in range(0, len(raw), 41):
        path = stored(tmp_path, raw[:position] + bytes([raw[position] ^ 0x10]) + raw[position + 1 :], suffix)
        try:
            assert read(FILE, path, tmp_path / "cache") == CONTENT  # only the header's time and name may differ
        except InvalidInput:
            refused += 1
    assert refused >= len(range(0, len(raw), 41)) - 1


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kept", [0, 1, 2500, -1])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, kept: int) -> None:
    path = stored(tmp_path, COMPRESS[suffix](CONTENT)[:kept], suffix)
    with pytest.raises(InvalidInput, match=r"damaged|of the 5000 bytes"):
        read(FILE, path, tmp_path / "cache")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_contents_with_one_byte_more_are_refused(tmp_path: Path, suffix: str) -> None:
    path = stored(tmp_path, COMPRESS[suffix](CONTENT + b"\0"), suffix)
    with pytest.raises(InvalidInput, match="more than the 5000 bytes"):
        read(FILE, path, tmp_path / "cache")


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_rubbish_after_the_compressed_stream_is_refused(tmp_path: Path, suffix: str) -> None:
    path = stored(tmp_path, COMPRESS[suffix](CONTENT) + b"rubbish", suffix)
    with pytest.raises(InvalidInput, match="damaged"):
        read(FILE, path, tmp_path / "cache")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_bomb_is_not_decompressed(tmp_path: Path, suffix: str) -> None:
    path = stored(tmp_path, COMPRESS[suffix](bytes(30_000_000)), suffix)
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="more than the 5000 bytes"):
        read(FILE, path, tmp_path / "cache")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000  # the decoder of xz takes its dictionary of 8 MB


def test_an_xz_file_cannot_ask_for_gigabytes(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    raw = bytearray(lzma.compress(CONTENT, filters=filters))
    assert raw[12:16] == bytes([2, 0, 0x21, 1])  # block header: size, flags, LZMA2, one byte of properties
    raw[16] = 40  # a dictionary of 4 GiB
    raw[20:24] = zlib.crc32(bytes(raw[12:20])).to_bytes(4, "little")
    with pytest.raises(InvalidInput, match="damaged"):
        read(FILE, stored(tmp_path, bytes(raw), ".xz"), tmp_path / "cache")


def test_only_xz_files_are_copied_to_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "cache"
    for suffix in ("", ".gz"):
        read(FILE, stored(tmp_path, COMPRESS[suffix](CONTENT), suffix), cache)
    assert not cache.exists()
    raw = lzma.compress(CONTENT)
    read(FILE, stored(tmp_path, raw, ".xz"), cache)
    assert [entry.name for entry in cache.iterdir()] == [hashlib.sha256(raw).hexdigest() + ".bin"]
    assert next(cache.iterdir()).read_bytes() == CONTENT


def test_the_copy_is_what_is_read_the_second_time(tmp_path: Path) -> None:
    path = stored(tmp_path, lzma.compress(CONTENT), ".xz")
    read(FILE, path, tmp_path / "cache")
    other = b"another five thousand bytes".ljust(5000, b".")
    copy = next((tmp_path / "cache").iterdir())
    copy.write_bytes(other)
    assert read(describe(FILE.name, other), path, tmp_path / "cache") == other


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b"\0", CONTENT[:-1] + b"\0"])
def test_a_damaged_copy_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    path = stored(tmp_path, lzma.compress(CONTENT), ".xz")
    read(FILE, path, tmp_path / "cache")
    copy = next((tmp_path / "cache").iterdir())
    copy.write_bytes(damage)
    assert read(FILE, path, tmp_path / "cache") == CONTENT
    assert copy.read_bytes() == CONTENT


def test_a_good_copy_does_not_hide_a_changed_file(tmp_path: Path) -> None:
    path = stored(tmp_path, lzma.compress(CONTENT), ".xz")
    read(FILE, path, tmp_path / "cache")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(InvalidInput):
        read(FILE, path, tmp_path / "cache")


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("not a folder")
    assert read(FILE, stored(tmp_path, lzma.compress(CONTENT), ".xz"), blocked / "cache") == CONTENT


def test_a_refused_file_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    path = stored(tmp_path, lzma.compress(CONTENT[::-1]), ".xz")
    with pytest.raises(InvalidInput):
        read(FILE, path, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_file_that_vanished_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(FILE, tmp_path / "gone.gz", tmp_path / "cache")


def test_check_names_the_place(tmp_path: Path) -> None:
    assert check(FILE, CONTENT, "here") is CONTENT
    with pytest.raises(InvalidInput, match=r"^there holds 4 of the 5000 bytes"):
        check(FILE, b"four", "there")


def test_places_come_from_the_argument_then_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NOISETTE_DATA", "NOISETTE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == Path("data")
    assert cache_folder() == tmp_path / ".cache" / "noisette"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/noisette")
    monkeypatch.setenv("NOISETTE_CACHE", "/n")
    monkeypatch.setenv("NOISETTE_DATA", "/d")
    assert cache_folder() == Path("/n")
    assert data_root() == Path("/d")
    assert data_root("/r") == Path("/r")
    assert os.fspath(data_root(Path("/r"))) == "/r"


def test_gzip_members_with_another_header_are_the_same_file(tmp_path: Path) -> None:
    path = stored(tmp_path, gzip.compress(CONTENT, compresslevel=1, mtime=12345), ".gz")
    assert read(FILE, path, tmp_path / "cache") == CONTENT
