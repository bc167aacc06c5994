"""Models in the fragment of a link: the part from `#` on, which a browser does not send to a server.

Reading a link runs no code from the link.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from mithril_nb.errors import ModelFileError
from mithril_nb.models.saving.reading import json_object

MARK = "#model="
"""Start of the fragment."""
MOST_CHARACTERS = 8_000
"""Maximum number of characters of the fragment. Browsers, mail and chat programs keep links of this length whole."""
_MOST_BYTES = 2_000_000
"""Maximum number of bytes of the data before compression."""
_RAW = -zlib.MAX_WBITS
_ADVICE = "model.share_link()  # creates the link again; copy all of it"


def is_link(text: object) -> bool:
    """Return whether a value is a string that contains `MARK`."""
    return isinstance(text, str) and MARK in text


def fragment_of(data: Mapping[str, Any]) -> str:
    """Return the fragment of a link that contains data: JSON, compressed as raw deflate, in URL-safe base64.

    Raises:
        ModelFileError: The fragment would be longer than `MOST_CHARACTERS`.

    Examples:
        >>> data_in(fragment_of({"model": 1}))
        {'model': 1}
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, _RAW)
    packed = packer.compress(json.dumps(data, separators=(",", ":")).encode()) + packer.flush()
    fragment = MARK + base64.urlsafe_b64encode(packed).decode().rstrip("=")
    if len(fragment) > MOST_CHARACTERS:
        raise ModelFileError(
            "this model is too large for a link.",
            (("needs", f"{len(fragment):,} characters"), ("limit", f"{MOST_CHARACTERS:,} characters")),
            'model.save("model.json")  # share the file',
        )
    return fragment


def data_in(link: str) -> Any:
    """Return the JSON data in the fragment of a link. It may be something other than a model.

    Raises:
        ModelFileError: The fragment or its data is too long, or the fragment is damaged or does not contain JSON.
    """
    text = link.partition(MARK)[2]
    if len(MARK) + len(text) > MOST_CHARACTERS:
        raise _broken(f"it has {len(MARK) + len(text):,} characters, and the limit is {MOST_CHARACTERS:,}")
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        reader = zlib.decompressobj(_RAW)
        data = reader.decompress(packed, _MOST_BYTES)
        if reader.unconsumed_tail:
            raise _broken(f"its data has more than {_MOST_BYTES:,} bytes")
        if not reader.eof:
            raise ValueError("the end is missing")
        return json.loads(data, object_pairs_hook=json_object)
    except ModelFileError:
        raise
    except (zlib.error, ValueError, RecursionError) as error:
        raise _broken("it is damaged, or a part is missing") from error


def _broken(because: str) -> ModelFileError:
    return ModelFileError("cannot read this link to a model.", (("because", because),), _ADVICE)
