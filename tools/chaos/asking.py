"""One question over one connection: asked, read to its end or left, and what is right for an end.

Returns how it ended. What is not as it must be raises Wrong; a connection that ends early raises Cut.
"""
import asyncio
import json
import time

from answers import need
from endings import Left, Refused
from pattern import Wrong
from wire import Connection

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"


def leave(link, plan):
    link.close(reset=plan.leave_by == "reset")
    raise Left


def refused(server, plan, status, headers, body):
    """An answer other than 200 to what is a good question."""
    text = body.decode("utf-8", "replace")
    error = json.loads(body).get("error")
    need(isinstance(error, dict) and error.get("message"), f"{status} without an error object: {text[:300]}")
    if status == 408 and plan.deadline_ms:
        raise Refused("deadline")
    if status == 500 and server.fails:
        raise Refused("failed step")
    if status in (429, 503):
        need("retry-after" in headers, f"{status} without Retry-After: {text[:300]}")
        need(status == 429 or server.ending, f"503 from a server that is not stopping: {text[:300]}")
        raise Refused(f"refused with {status}")
    raise Wrong(f"{status}: {text[:300]}")


def finish(server, plan, reader):
    if reader.error is not None:
        need(plan.deadline_ms or server.ending or server.fails, f"an error event: {reader.error}")
        return "error event"
    need(reader.done, "the stream ended before its answer did")
    reader.check()
    return "whole"


async def ask_over(link, server, plan, path, body, reader, stream):
    headers = [("x-request-timeout-ms", plan.deadline_ms)] if plan.deadline_ms else []
    link.begun, link.sent_at = False, float("inf")
    await link.send(Connection.request("POST", path, body, headers))
    link.sent_at = time.monotonic()
    if plan.leave_by == "half":
        link.half_close()
    if plan.leave_after is not None and not stream:
        await asyncio.sleep(plan.leave_after / 50)
        leave(link, plan)
    status, heads = await link.head()
    link.begun = True
    if status != 200:
        refused(server, plan, status, heads, await link.body(heads))
    if not stream:
        reader.whole(await link.body(heads))
        return finish(server, plan, reader)
    count = 0
    async for name, data in link.events(heads):
        reader.event(name, data)
        count += 1
        if plan.leave_after is not None and count > plan.leave_after:
            leave(link, plan)
    return finish(server, plan, reader)


async def ask(load, server, plan, path, body, reader, stream):
    async with load.link(server, plan) as link:
        return await ask_over(link, server, plan, path, body, reader, stream)
