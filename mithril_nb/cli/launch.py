"""`mithril-nb launch`: run a training script on several processes."""

from __future__ import annotations

import argparse
from dataclasses import replace

from mithril_nb.cli.terminal import FAILED, complain
from mithril_nb.errors import LaunchError, UnknownOptionError


def launch_script(options: argparse.Namespace) -> int:
    """Run the script on all processes, and return the worst of their exit codes."""
    from mithril_nb.compilation.launch import launch

    try:
        launch(
            options.script,
            options.arguments,
            processes=options.processes,
            coordinator=options.coordinator,
            process_id=options.process_id,
            devices=options.devices,
            start_timeout_s=options.start_timeout,
            peer_timeout_s=options.peer_timeout,
        )
    except LaunchError as error:
        complain(error.diagnostics)
        return error.status
    except UnknownOptionError as error:
        complain([replace(one, advice=_as_option(one.advice)) for one in error.diagnostics])
        return FAILED
    return 0


def _as_option(advice: str) -> str:
    """Return a Python argument, `start_timeout_s=60`, as an option, `--start-timeout 60`; other text unchanged."""
    name, equals, value = advice.partition("=")
    return f"--{name.removesuffix('_s').replace('_', '-')} {value}" if equals and name.isidentifier() else advice
