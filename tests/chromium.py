"""A headless Chromium over its debugging pipe, for tests that look at pages. One owner, one thread."""
import json
import os
import select
import subprocess
import time


class Chromium:
    """A headless browser over its debugging pipe: messages end with a NUL."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.come, to_write = os.pipe()

        def set_pipes():
            # 3 and 4 may be what was just opened.
            first, second = os.dup(to_read), os.dup(to_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=set_pipes)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.last_id = 0
        self.events = []
        self.session = None

    def receive(self, until):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.come], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser fell silent")
            piece = os.read(self.come, 1 << 20)
            if not piece:
                raise EOFError("the browser is gone")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            got = self.receive(until)
            if got.get("id") == self.last_id:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def open_page(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")

    def visit(self, url, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.events.clear()
        self.call("Page.navigate", url=url)
        until = time.monotonic() + 60
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive(until))

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"]["value"]

    def close(self):
        self.process.kill()
        self.process.wait(20)
        os.close(self.to)
        os.close(self.come)
