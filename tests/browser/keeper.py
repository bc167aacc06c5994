"""Run a program, and end it with its child processes when our standard input closes.

The tests start servers through this. However the tests end, also by SIGKILL, the pipe closes and nothing stays behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def keep(command: list[str]) -> int:
    """Run the program in its own process session until it ends or our standard input closes."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # The parent ends this process by closing the pipe, and handles interrupts of the terminal itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end(process))
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), end(process)), daemon=True).start()
    return process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the program's group, and kill it after a while."""
    for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
