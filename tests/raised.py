"""The whole text of an error, as the user sees it."""

from collections.abc import Callable

import pytest

from mithril_nb.errors import MithrilError


def message_of(call: Callable[[], object]) -> str:
    """Return the class and the text of the error that a call raises."""
    with pytest.raises(MithrilError) as error:
        call()
    return f"{type(error.value).__name__}: {error.value}"
