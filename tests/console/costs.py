#!/usr/bin/env python3
"""Figures of docs/performance.md: what open consoles cost their server, and what fifteen minutes of history and ten of a stream do to its memory.

usage: costs.py BINARY [--consoles 16] [--seconds 60] [--workers 8]

A gateway with workers of scripted answers under a small load. Its processor time (of all threads, /proc) over --seconds with no console and with
--consoles of them (streams of /console/fleet that are read as a browser reads them), by turns, three times each.
"""
import argparse
import http.client
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import gateway_fixture
from gateway_fixture import Fleet, ask, chat


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Console:
    """One browser's stream."""

    def __init__(self, port):
        self.bytes = 0
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.connection.request("GET", "/console/fleet")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.status
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while part := self.answer.read1(1 << 16):
                self.bytes += len(part)
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def close(self):
        self.connection.sock and self.connection.sock.shutdown(2)
        self.thread.join()
        self.connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--consoles", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    gateway_fixture.BINARY = os.path.abspath(options.binary)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(pathlib.Path(folder), options.workers)
        over = threading.Event()

        def load():
            number = 0
            while not over.is_set():
                number += 1
                ask(fleet.gateway.port, "POST", "/v1/chat/completions", chat(number, 5, number))
                time.sleep(0.2)
        client = threading.Thread(target=load)
        client.start()
        pid = fleet.gateway.process.pid
        shares = {0: [], options.consoles: []}
        for _ in range(3):
            for count, found in shares.items():
                consoles = [Console(fleet.admin) for _ in range(count)]
                time.sleep(2)  # the history has been sent
                before, read = cpu_seconds(pid), sum(one.bytes for one in consoles)
                time.sleep(options.seconds)
                found.append((cpu_seconds(pid) - before) / options.seconds)
                read = sum(one.bytes for one in consoles) - read
                for one in consoles:
                    one.close()
                if count:
                    print(f"{read / count / options.seconds:.0f} bytes/s a console", flush=True)
        over.set()
        client.join()
        for count, found in shares.items():
            print(f"{count} consoles: {', '.join(f'{100 * one:.2f}' for one in found)} % of a core")
        alone, watched = (statistics.median(found) for found in shares.values())
        print(json.dumps({"consoles": options.consoles, "workers": options.workers, "cost_percent_of_a_core": round(100 * (watched - alone), 2)}))
        fleet.close()


if __name__ == "__main__":
    main()
