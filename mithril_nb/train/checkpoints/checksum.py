"""A checksum inside a safetensors file that covers each byte of the file, including the header.

The header holds the SHA-256 of the file, computed with zeros instead of the SHA-256.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO

NAME = "mithril_nb.sha256"
"""Key of the checksum in the file's metadata. Do not change it: every version of a checkpoint uses it."""
ZEROS = "0" * 64
_MARK = f'"{NAME}":"'.encode()
_LONGEST_HEADER = 100_000_000
"""Longest header that safetensors reads, in bytes."""
_CHUNK = 1 << 20


def seal(path: Path) -> None:
    """Replace the `ZEROS` in a file's metadata by the checksum.

    Raises:
        OSError: The file cannot be read or written.
    """
    place, _, total = _read(path)
    assert place is not None, "the metadata lacks the checksum"
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(total)


def is_sealed(path: Path) -> bool | None:
    """Return whether a file is unchanged since `seal`; `None` if its header holds no checksum.

    Raises:
        OSError: The file cannot be read.
    """
    place, stated, total = _read(path)
    return None if place is None else stated == total


def content_id(path: Path) -> str:
    """Return an id of a sealed file's content. It needs only the header, which contains the checksum.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.sha256(_header(file)).hexdigest()


def _header(file: IO[bytes]) -> bytes:
    """Return the header of a file, including its length prefix, and leave the file position after it."""
    length = file.read(8)
    return length + file.read(min(int.from_bytes(length, "little"), _LONGEST_HEADER))


def _read(path: Path) -> tuple[int | None, bytes, bytes]:
    """Return the offset of the checksum in a file (`None` if absent), the stored one, and the computed one."""
    with open(path, "rb") as file:
        header = _header(file)
        # JSON escapes quotation marks inside strings, so only the key itself matches.
        place = header.find(_MARK) + len(_MARK)
        if place < len(_MARK):
            return None, b"", b""
        stated = header[place : place + len(ZEROS)]
        total = hashlib.sha256(header[:place] + ZEROS.encode() + header[place + len(ZEROS) :])
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return place, stated, total.hexdigest().encode()
