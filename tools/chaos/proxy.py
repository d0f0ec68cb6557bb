#!/usr/bin/env python3
"""A bad network between a client and a server, in user space: delays, stalls, cuts, one-byte writes.

usage: proxy.py        prints its port; ends when its stdin does

A client's first line is JSON and says what shall happen to its connection; what follows goes on to the
server. So the client knows which of its streams may end badly, and where:

  {"to": PORT,
   "down": BYTES, "up": BYTES,     so much in a piece towards the client, the server; else as it comes
   "pause": SECONDS,               between pieces
   "pieces": N,                    so many such pieces, then as it comes
   "stall_at": BYTES, "stall": S,  once so much has gone down, nothing does for so long
   "cut_at": BYTES,                so much goes down and no more
   "cut_up_at": BYTES,             so much of the request goes up and no more
   "how": "reset" or "truncate"}   a cut as RST, or as an end of the stream that looks orderly
"""
import asyncio
import json
import socket
import struct
import sys

READ_BYTES = 1 << 16


def reset(writer):
    try:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # the other side was faster
    writer.transport.abort()


class Link:
    def __init__(self, faults, client, server):
        self.faults, self.client, self.server = faults, client, server

    async def pump(self, reader, writer, piece, cut_at, stall_at):
        """Until the end of what comes, or the cut. True: it was cut."""
        passed, pieces = 0, self.faults.get("pieces", 1 << 30)
        while data := await reader.read(READ_BYTES):
            while data:
                small = piece is not None and pieces > 0
                part, data = (data[:piece], data[piece:]) if small else (data, b"")
                pieces -= small
                if cut_at is not None and passed + len(part) > cut_at:
                    writer.write(part[:cut_at - passed])
                    await writer.drain()
                    return True
                if stall_at is not None and passed + len(part) > stall_at:
                    stall_at = None
                    await asyncio.sleep(self.faults["stall"])
                writer.write(part)
                await writer.drain()
                passed += len(part)
                if small and self.faults.get("pause"):
                    await asyncio.sleep(self.faults["pause"])
        return False

    async def run(self):
        faults, (client_reader, client_writer), (server_reader, server_writer) = self.faults, self.client, self.server

        async def up():
            cut = await self.pump(client_reader, server_writer, faults.get("up"), faults.get("cut_up_at"), None)
            if not cut and server_writer.can_write_eof():
                server_writer.write_eof()
            return cut

        async def down():
            await self.pump(server_reader, client_writer, faults.get("down"), faults.get("cut_at"), faults.get("stall_at"))
            return True

        tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            while tasks:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                # Of each, also where the first says enough: an exception that nobody takes is complained of.
                over = [task.exception() or task.result() for task in done]
                if any(over):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if faults.get("how") == "reset":
                reset(client_writer)
                reset(server_writer)
            else:
                client_writer.close()
                server_writer.close()


LINKS = set()  # the loop itself holds tasks weakly


async def serve(reader, writer):
    task = asyncio.current_task()
    LINKS.add(task)
    task.add_done_callback(LINKS.discard)
    try:
        faults = json.loads(await reader.readline())
        server = await asyncio.open_connection("127.0.0.1", faults["to"])
    except (OSError, ValueError, KeyError):
        return reset(writer)
    try:
        await Link(faults, (reader, writer), server).run()
    except (OSError, asyncio.CancelledError):
        for end in (writer, server[1]):
            end.transport.abort()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=READ_BYTES, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
