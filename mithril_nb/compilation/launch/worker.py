"""The program that each process of a launch runs: connect to the other processes, then run the script."""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import threading
import traceback

from mithril_nb.compilation.launch.process_group import Rank

READY = b"ready"


def main(link: socket.socket, script: str, arguments: list[str]) -> int:
    """Connect to the other processes and run a script. If the launcher ends first, kill this process."""
    threading.Thread(target=_end_with, args=(link,), daemon=True, name="mithril_nb launcher").start()
    Rank.read(os.environ).join()
    link.send(READY)
    sys.argv = [script, *arguments]
    # As if Python had been started with the script: its folder comes first.
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        # `sys.exit("text")` prints the text and exits with 1, as in Python.
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != script:
            trace = trace.tb_next
        # Without the frames of this file and of `runpy`, which come first.
        traceback.print_exception(error.with_traceback(trace or error.__traceback__))
        return 1
    return 0


def _end_with(link: socket.socket) -> None:
    # The link closes when the launcher ends, even if it was killed. No process may be left running.
    link.recv(1)
    if os.getpgrp() == os.getpid():  # otherwise a user started this manually, and the group is the user's
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(status: int) -> None:
    # A failed process does not wait for the others, which may never reach the common shutdown.
    sys.stdout.flush()
    sys.stderr.flush()
    if status:
        os._exit(status)
    import jax

    jax.distributed.shutdown()


if __name__ == "__main__":
    _, _descriptor, _script, *_rest = sys.argv
    _link = socket.socket(fileno=int(_descriptor))
    _link.set_inheritable(False)
    try:
        _status = main(_link, _script, _rest)
    except BaseException:
        traceback.print_exc()
        _status = 1
    _leave(_status)
