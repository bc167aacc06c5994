"""A checksum inside a safetensors file that covers each byte of the file, its header included.

The header holds the SHA-256 of the file, calculated with zeros in place of the SHA-256.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO

NAME = "mithril_nb.sha256"
"""Key of the checksum in the metadata of the file. Every version of a checkpoint keeps it."""
ZEROS = "0" * 64
_MARK = f'"{NAME}":"'.encode()
_LONGEST_HEADER = 100_000_000
"""safetensors reads no longer ones."""
_CHUNK = 1 << 20


def seal(path: Path) -> None:
    """Write the checksum into a file whose metadata holds `ZEROS` instead.

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
    """Return what differs between sealed files of different content; reads the header only.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.sha256(_header(file)).hexdigest()


def _header(file: IO[bytes]) -> bytes:
    """Return the header of a file with its length, and leave the file at the end of the header."""
    length = file.read(8)
    return length + file.read(min(int.from_bytes(length, "little"), _LONGEST_HEADER))


def _read(path: Path) -> tuple[int | None, bytes, bytes]:
    """Return where the checksum is in a file, the checksum, and what it should be."""
    with open(path, "rb") as file:
        header = _header(file)
        # JSON escapes the quotation marks within texts, so only the key itself reads like this.
        place = header.find(_MARK) + len(_MARK)
        if place < len(_MARK):
            return None, b"", b""
        stated = header[place : place + len(ZEROS)]
        total = hashlib.sha256(header[:place] + ZEROS.encode() + header[place + len(ZEROS) :])
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return place, stated, total.hexdigest().encode()
