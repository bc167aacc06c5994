"""Run code in a separate Python process: for code that changes the process or needs a clean import state."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_fresh(code: str, *arguments: str, timeout: float = 120, **environment: str) -> str:
    """Return the output of the code; a warning or an error in it fails the test."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
