"""Run code in a separate Python process, if it would change this one or needs modules that are not yet imported."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_fresh(code: str, *arguments: str, timeout: float = 120, **environment: str) -> str:
    """Return what the code prints; a warning or a failure in it fails the test."""
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
