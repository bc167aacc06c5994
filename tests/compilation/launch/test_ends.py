"""The end of a launch: its cause, its delay, its message, and that no process is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time

import pytest
from transcript import facts_of, without_advice

from mithril_nb.compilation.launch import launch, launcher, worker
from mithril_nb.compilation.launch.process_group import Rank, free_address
from mithril_nb.errors import LaunchError, UnknownOptionError

WAIT = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"])
print("pid", os.getpid(), flush=True)
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("saved", flush=True)
    raise
"""


@pytest.mark.timeout(60)
def test_failure_ends_a_process_that_ignores_sigterm(script, nothing_left, monkeypatch, capfd):
    monkeypatch.setattr(launcher, "GRACE_S", 0.5)
    path = script("""
        import os, pathlib, signal, subprocess, sys, time
        import jax, jax.numpy as jnp, numpy as np
        import mithril_nb as ml
        me = ml.distributed()
        print("pid", os.getpid())
        subprocess.Popen(["sleep", "1000"])
        met = pathlib.Path(__file__).with_name("met")
        if me.index == 1:
            while not met.exists():
                time.sleep(0.01)
            print("no more", sys.argv[1:], file=sys.stderr)
            sys.exit(3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        met.touch()
        print(jnp.sum(me.assemble(np.ones(1))))
    """)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(LaunchError) as caught:
        launch(path, ["--rate", "0.5"])
    out, err = capfd.readouterr()
    pids = dict(re.findall(r"\[(\d)\] pid (\d+)\n", out))
    assert sorted(pids) == ["0", "1"]
    nothing_left([int(pid) for pid in pids.values()])
    assert "[1] no more ['--rate', '0.5']\n" in err
    assert (
        without_advice(str(caught.value))
        == f"""process 1 of 2 ended with exit status 3.
    process 1            pid {pids["1"]}
                         no more ['--rate', '0.5']
    ended by mithril-nb  process 0"""
    )
    assert caught.value.status == 3
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("def f():\n    raise ValueError('no such luck')\nf()\n", 1, "ValueError: no such luck\n"),
        ("import sys\nsys.exit('no such luck')\n", 1, "no such luck\n"),
        ("import sys\nsys.exit(7)\n", 7, ""),
        ("import sys\nsys.exit()\n", 0, ""),
        ("raise KeyboardInterrupt\n", 130, ""),
        ("import sys\nassert (__name__, sys.argv[1:]) == ('__main__', ['--a', 'b'])\n", 0, ""),
    ],
)
def test_script_exits_like_under_python(script, monkeypatch, capsys, code, status, expected):
    """Run the worker in this process, as if it had connected to the others."""
    path = str(script(code))
    monkeypatch.setattr(Rank, "join", lambda rank: None)
    monkeypatch.setattr(worker, "_end_with", lambda link: None)  # it would end the tests
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, value in Rank("127.0.0.1:4000", 0, 1).environment({}).items():
        monkeypatch.setenv(name, value)
    ours, theirs = socket.socketpair()
    with theirs, ours:
        assert worker.main(theirs, path, ["--a", "b"]) == status
        assert ours.recv(64) == worker.READY
    err = capsys.readouterr().err
    assert err.endswith(expected)
    if "Error" in expected:
        assert err.startswith(f'Traceback (most recent call last):\n  File "{path}", line 3, in <module>\n')


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, "[0] saved\n"), (signal.SIGTERM, "")])
def test_a_signal_ends_everything(script, launched, nothing_left, number, expected):
    one = launched("--processes", "1", script(WAIT))
    pids = one.workers(1)
    one.process.send_signal(number)
    assert one.wait(20) == 128 + number
    nothing_left([one.process.pid, *pids])
    assert one.out == f"[0] pid {pids[0]}\n{expected}"


@pytest.mark.timeout(90)
def test_lost_machine_ends_the_other(script, launched, nothing_left):
    """Two launchers with one address simulate two machines; one of them is killed."""
    address, path = free_address(), script(WAIT)
    options = ("--coordinator", address, "--processes", "2", "--peer-timeout", "3", "--process-id")
    left, right = (launched(*options, index, path) for index in ("0", "1"))
    pid = int(left.until(r"\[0\] pid (\d+)\n")[1])
    lost = int(right.until(r"\[1\] pid (\d+)\n")[1])
    began = time.monotonic()
    right.process.kill()
    nothing_left([lost], within_s=5)  # it ends with its launcher, and takes what it has started along
    assert left.wait(40) == 128 + signal.SIGABRT
    assert time.monotonic() - began < 30
    nothing_left([left.process.pid, pid])
    assert "LaunchError: process 0 of 2 was killed by SIGABRT.\n" in left.err


def test_missing_processes_time_out(script, launched, nothing_left):
    address, path = free_address(), script("print('never')\n")
    options = ("--coordinator", address, "--processes", "2", "--start-timeout", "3")
    one = launched(*options, "--process-id", "1", path)
    assert one.wait(20) == 124
    assert one.out == ""
    assert without_advice(one.err[one.err.index("LaunchError") :]) == (
        f"""LaunchError: the 2 processes did not connect within 3 s.
    coordinator    {address}
    not connected  process 1"""
    )


REFUSED = {
    "processes must be an integer of at least 1.\n    got  0": {"processes": 0},
    "devices must be an integer of at least 1.\n    got  0": {"devices": 0},
    "start_timeout_s must be a number of seconds.\n    got  -1": {"start_timeout_s": -1},
    "peer_timeout_s must be a number of seconds.\n    got  nan": {"peer_timeout_s": float("nan")},
    """a launch on several machines needs the address of process 0 and the index of this process.
    coordinator  '10.0.0.1'
    process id   1""": {
        "coordinator": "10.0.0.1",
        "process_id": 1,
    },
    """a launch on several machines needs the address of process 0 and the index of this process.
    coordinator  None
    process id   1""": {"process_id": 1},
    """the process id is out of range.
    process id  2
    needed      0 to 1, for 2 processes""": {"coordinator": "10.0.0.1:4000", "process_id": 2},
}


@pytest.mark.parametrize("message", REFUSED, ids=lambda message: message.split("\n")[0][:30])
def test_invalid_numbers_are_rejected(script, message):
    with pytest.raises(UnknownOptionError) as caught:
        launch(script(""), **REFUSED[message])
    assert without_advice(str(caught.value)) == message


def test_missing_script_is_rejected(tmp_path):
    assert facts_of(lambda: launch(tmp_path / "train.py")) == (
        f"""LaunchError: script {str(tmp_path / "train.py")!r} does not exist."""
    )


def test_the_environment_of_a_process():
    rank = Rank("127.0.0.1:4000", 1, 2, devices=3)
    given = {"XLA_FLAGS": "--xla_a=1 --xla_force_host_platform_device_count=8 --xla_b", "NPROC": "64", "A": "b"}
    found = rank.environment(given)
    assert Rank.read(found) == rank
    assert found["XLA_FLAGS"].split() == ["--xla_a=1", "--xla_b"]
    assert (found["NPROC"], rank.environment({})["NPROC"]) == ("64", "12")
    assert (found["JAX_NUM_CPU_DEVICES"], found["A"], found["no_grpc_proxy"]) == ("3", "b", "127.0.0.1")
    assert os.environ.get("MITHRIL_NB_LAUNCH") is None
