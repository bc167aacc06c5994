"""C expressions of indices, simplified where they are numbers."""

from __future__ import annotations


def scaled(index: str, factor: int = 1, offset: int = 0) -> str:
    """Return the index `factor * index + offset`.

    Examples:
        >>> scaled("i"), scaled("i", 2, 1), scaled("3", 2, 1), scaled("i", -1, 7), scaled("i + 1", 1, -1)
        ('i', '2 * i + 1', '7', '7 - i', 'i + 1 - 1')
    """
    if is_number(index):
        return str(factor * int(index) + offset)
    inner = index if index.isidentifier() else f"({index})"
    if factor == -1:
        return f"{offset} - {inner}" if offset else f"-{inner}"
    text = index if factor == 1 else f"{factor} * {inner}"
    if not offset:
        return text
    return f"{text} {'-' if offset < 0 else '+'} {abs(offset)}"


def divided(index: str, by: int) -> str:
    """Return an index divided by a number and rounded down; the index must not be negative.

    Examples:
        >>> divided("i", 2), divided("i + 1", 2), divided("i + 1", 1), divided("5", 2)
        ('i / 2', '(i + 1) / 2', 'i + 1', '2')
    """
    if by == 1:
        return index
    if is_number(index):
        return str(int(index) // by)
    return f"{index if index.isidentifier() else f'({index})'} / {by}"


def remainder(index: str, by: int) -> str:
    """Return the remainder of an index divided by a number; the index must not be negative.

    Examples:
        >>> remainder("i", 2), remainder("i + 1", 2), remainder("i", 1), remainder("5", 2)
        ('i % 2', '(i + 1) % 2', '0', '1')
    """
    if by == 1:
        return "0"
    if is_number(index):
        return str(int(index) % by)
    return f"{index if index.isidentifier() else f'({index})'} % {by}"


def total(*parts: str) -> str:
    """Return the sum of some indices.

    Examples:
        >>> total("i", "0", "2"), total("1", "2"), total("i", "7 - j")
        ('i + 2', '3', 'i + 7 - j')
    """
    numbers = sum(int(one) for one in parts if is_number(one))
    others = [one for one in parts if not is_number(one)]
    if not others:
        return str(numbers)
    text = " + ".join(others)
    return scaled(text, 1, numbers) if numbers else text


def flat(index: tuple[str, ...], shape: tuple[int, ...]) -> str:
    """Return the position of an item in the flattened array.

    Examples:
        >>> flat(("i", "j"), (2, 3)), flat((), ())
        ('3 * i + j', '0')
    """
    parts: list[str] = []
    stride = 1
    for one, size in zip(reversed(index), reversed(shape), strict=True):
        parts.append(scaled(one, stride))
        stride *= size
    return total(*reversed(parts))


def is_number(index: str) -> bool:
    """Return whether an index is a number and not an expression."""
    return index.removeprefix("-").isdigit()
