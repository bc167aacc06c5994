"""Runs never resume from a checkpoint with a flipped bit."""

from __future__ import annotations

import warnings

import numpy as np
from transcript import without_advice

from mithril_nb.train.checkpoints.saver import latest
from tests.train.resuming import resumed


def header_bytes(data: bytes) -> int:
    """Return the number of bytes before the arrays: the length field and the JSON."""
    return 8 + int.from_bytes(data[:8], "little")


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_flipped_header_bits_are_rejected(small, blobs, two, stress):
    """In a full run, flip every bit of the header and as many bits of the arrays; each falls back with a warning."""
    path = two / "step-0000000008.safetensors"
    data = path.read_bytes()
    bits = 8 * header_bytes(data)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(bits)[: stress.size(short=250, long=bits)].tolist()
    chosen += rng.integers(bits, 8 * len(data), len(chosen) // 10).tolist()
    accepted, silent = [], []
    for bit in chosen:
        path.write_bytes(flipped(data, bit))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            saved = latest(two)
        if saved is None or saved.facts["step"] != 4:
            accepted.append(bit)
        elif [str(one.message).partition("\n")[0] for one in caught] != [
            f"{path.name!r} is not a complete checkpoint."
        ]:
            silent.append(bit)
    stress.report(header_bits=bits, flips=len(chosen), accepted=len(accepted), without_a_warning=len(silent))
    assert (accepted, silent) == ([], [])


def test_flipped_rate_falls_back_to_previous_checkpoint(small, blobs, two):
    path = two / "step-0000000008.safetensors"
    data = path.read_bytes()
    place = data.index(b"0.001")
    path.write_bytes(flipped(data, 8 * (place + 4) + 3))  # 0.001 becomes 0.009
    assert path.read_bytes()[place : place + 5] == b"0.009"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run = resumed(small, blobs, two)
    assert (run.step, run.learning_rate) == (4, 0.001)
    assert [without_advice(str(one.message)) for one in warned] == [
        f"""'step-0000000008.safetensors' is not a complete checkpoint.
    folder   {two}
    because  it was changed or truncated after it was written (sha256)
    instead  the run resumes from 'step-0000000004.safetensors'"""
    ]
