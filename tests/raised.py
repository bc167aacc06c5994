"""The whole text of an error, as the user sees it."""

from transcript import message_of

__all__ = ["message_of"]
