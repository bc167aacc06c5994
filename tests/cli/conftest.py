"""The command line as a function."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mithril_nb import cli


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command and returns its exit code, its output and its errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def printed(run_cli: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Return a function that runs a command, which must succeed, and returns its output."""

    def run(*arguments: str) -> str:
        code, out, err = run_cli(*arguments)
        assert (code, err) == (0, ""), arguments
        return out

    return run


@pytest.fixture
def refused(run_cli: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Return a function that runs a command, which must fail and print nothing, and returns its errors."""

    def run(*arguments: str) -> str:
        code, out, err = run_cli(*arguments)
        assert (code, out) == (2, ""), arguments
        return err

    return run
