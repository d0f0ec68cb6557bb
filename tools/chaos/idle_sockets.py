#!/usr/bin/env python3
"""WebSockets on which nobody says anything for an hour but pings and pongs, at a server and at a gateway: each answers at once when it is asked
again, and goes on from what it was asked before. One that leaves its pings unanswered is closed.

usage: idle_sockets.py BINARY (--hours N | --minutes N)     an hour at most

Exit code 1: one was closed, heard too few pings, or did not answer within five seconds; or the silent one was not closed.
"""
import argparse
import asyncio
import json
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import gateway_fixture  # noqa: E402
from gateway_fixture import Fleet  # noqa: E402
from wire import Connection  # noqa: E402

SECONDS_MAX = 3600
PING_S = 30      # net::HttpServer::Options::websocket_ping_time
AT_ONCE_S = 5


class Idle(Connection):
    pongs = 0
    last_id = None

    async def send_frame(self, payload, opcode=1):
        self.pongs += opcode == 10
        await super().send_frame(payload, opcode)

    async def ask(self):
        """Seconds to the first event of a response, which is whole."""
        began, first = time.monotonic(), None
        await self.send_frame(json.dumps({"type": "response.create", "model": "pelton-box", "input": "Are you there?",
                                          "previous_response_id": self.last_id}).encode())
        while True:
            opcode, payload = await self.frame()
            assert opcode == 1, (opcode, payload)
            first = first or time.monotonic() - began
            event = json.loads(payload)
            assert event["type"] != "error", event
            if event["type"] == "response.completed":
                assert event["response"]["output"][-1]["content"][0]["text"] == "Ready.", event
                self.last_id = event["response"]["id"]
                return first

    async def idle(self, seconds):
        """Nothing but pings comes."""
        try:
            came = await asyncio.wait_for(self.frame(), seconds)
        except TimeoutError:
            return
        raise AssertionError(f"it said {came}")


async def run(fleet, seconds):
    links = {}
    for name, port in (("server", fleet.workers[0].port), ("gateway", fleet.gateway.port), ("silent", fleet.workers[1].port)):
        links[name] = await Idle.open(port)
        status = (await links[name].upgrade("/v1/responses"))[0]
        assert status == 101, status
        await links[name].ask()
    silent = links.pop("silent")
    await asyncio.gather(*(link.idle(seconds) for link in links.values()))
    for name, link in links.items():
        first = await link.ask()
        print(f"{name}: idle for {seconds:.0f} s, {link.pongs} pings answered, first event after {first * 1000:.0f} ms", flush=True)
        assert first < AT_ONCE_S, first
        assert link.pongs >= int(seconds / PING_S / 2), link.pongs
        link.writer.close()
    await asyncio.wait_for(silent.reader.read(), 4 * PING_S)
    print("silent: closed", flush=True)


def main():
    arguments = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    arguments.add_argument("binary")
    length = arguments.add_mutually_exclusive_group(required=True)
    length.add_argument("--hours", type=float)
    length.add_argument("--minutes", type=float)
    given = arguments.parse_args()
    gateway_fixture.BINARY = str(pathlib.Path(given.binary).resolve())
    seconds = min(SECONDS_MAX, given.minutes * 60 if given.minutes else given.hours * 3600)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(folder, 2)
        try:
            asyncio.run(run(fleet, seconds))
        finally:
            fleet.close()


if __name__ == "__main__":
    main()
