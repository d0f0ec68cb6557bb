"""Ports that tests listen on, for when the number must be known before the server starts (elsewhere port 0 is asked for).

A number from the kernel's own range (`bind` to 0, close, use it later) may be handed to any other process in between. These come from
below that range, and whoever drew one keeps a lock on it until the process ends, so that tests beside one another never draw the same.
"""
import fcntl
import os
import pathlib
import random
import socket
import tempfile

FIRST = 10000
HELD = {}  # port -> open lock file, kept for the life of the process


def kernels_first():
    """Where the range begins from which the kernel hands out ports."""
    try:
        return int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32768


def free_port():
    """A port of 127.0.0.1 that nobody listens on and that no other test process will be given while this one runs."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"pelton-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    last = max(kernels_first() - 1, FIRST + 1000)
    dice = random.SystemRandom()
    for _ in range(1000):
        port = dice.randint(FIRST, last)
        if port in HELD:
            continue
        lock = open(folder / str(port), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        HELD[port] = lock
        return port
    raise AssertionError(f"no free port between {FIRST} and {last}")
