"""Clients that do not behave: deaf ones, malformed requests, garbage, those who are gone at once."""
import asyncio
import json
import time

import hostile
from answers import Chat, need
from asking import CHAT, RESPONSES, TEXT, finish, leave, refused
from questions import Plan, Question
from wire import Connection, Cut


async def deaf(load, server, plan, dice):
    """Asks for much and reads nothing, until there is calm or the server has had enough."""
    question = Question(load.number(), "text", "", 0, 300, 3500)
    question.prompt = f"text for {question.number} 0 {question.second} "
    plan.faults, plan.slow, plan.leave_after, plan.deadline_ms = None, 1e-9, None, None
    async with load.link(server, plan) as link:
        link.writer.transport.pause_reading()
        await link.send(Connection.request("POST", TEXT, question.completion(True)))
        since = time.monotonic()
        hold = dice.choice([1, 5, 20, 90])
        while time.monotonic() - since < hold and not load.calm.is_set():
            await asyncio.sleep(0.2)
        if dice.random() < 0.5:
            plan.leave_by = dice.choice(["close", "reset"])
            leave(link, plan)
        link.writer.transport.resume_reading()
        reader = Chat(question.tallies(), question.tokens_max)
        try:
            status, heads = await link.head()
            if status != 200:
                refused(server, plan, status, heads, await link.body(heads))
            async for name, data in link.events(heads):
                reader.event(name, data)
        except Cut:
            if time.monotonic() - since > load.STALL_S or server.ending:
                return "cut off for reading nothing"
            raise
        return finish(server, plan, reader) + ", read late"


HTTP_ROWS, BODY_ROWS = hostile.http_rows(), hostile.body_rows()


async def malformed(load, server, plan, dice):
    name, data, statuses = dice.choice(HTTP_ROWS if dice.random() < 0.4 else BODY_ROWS)
    async with load.link(server, Plan()) as link:
        try:
            await link.send(data)
            link.half_close()
            status, heads = await link.head()
        except Cut:
            if statuses and not server.ending:
                raise
            return "closed"
        if server.ending and status == 503:
            return "refused with 503"
        need(not statuses or status in statuses, f"{name} {data[:120]!r}: {status}, not {statuses}")
        need(400 <= status < 500 or status in (501, 505), f"{name} {data[:120]!r}: {status}")
        if data.startswith(b"POST"):
            body = await link.body(heads)
            need("error" in json.loads(body), f"{name}: no error object in {body[:200]!r}")
        return "refused"


async def garbage(load, server, plan, dice):
    """Bytes that mean nothing, on any listener; then the connection ends one way or the other."""
    what = dice.randrange(4)
    async with load.link(server, Plan(), grpc=what == 0) as link:
        try:
            if what == 0:
                await link.send(dice.choice(hostile.GRPC_BYTES))
            elif what == 1:
                await link.send(dice.randbytes(dice.randrange(1, 5000)) + b"\r\n\r\n")
            else:
                status, heads = await link.upgrade(RESPONSES)
                if status != 101:
                    refused(server, plan, status, heads, await link.body(heads))
                if what == 3:
                    return await nonsense_over_socket(link, server, dice)
                await link.send(dice.choice(hostile.WEBSOCKET_FRAMES))
                opcode, payload = await link.frame()
                code = int.from_bytes(payload[:2], "big")
                need(opcode == 8 and code in (1001, 1002, 1007, 1008, 1009), f"opcode {opcode}, code {code}")
                return "closed"
            if link.encrypted:
                return "closed"
            link.half_close()
            while await link.reader.read(1 << 16):
                pass
        except (Cut, ConnectionError):
            pass
        return "closed"


async def nonsense_over_socket(link, server, dice):
    await link.send_frame(dice.choice(hostile.WEBSOCKET_MESSAGES).encode())
    opcode, payload = await link.frame()
    need(server.ending or (opcode == 1 and json.loads(payload)["type"] == "error"), f"{opcode}: {payload[:200]!r}")
    return "refused"


async def gone_at_once(load, server, plan, dice):
    """HT-24: asked, and reset in the same breath; or only half asked."""
    question = Question.draw(dice, load.number())
    data = Connection.request("POST", CHAT, question.chat(True))
    for _ in range(dice.randrange(1, 10)):
        async with load.link(server, Plan()) as link:
            await link.send(data[:dice.randrange(1, len(data))] if dice.random() < 0.3 else data)
            link.close(reset=dice.random() < 0.7)
    return "left by us"
