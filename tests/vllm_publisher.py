"""What a vLLM worker has for its KV events, as little as a test needs: ZMTP 3.0 without security over TCP, a PUB socket and a ROUTER that
says again what was missed, and msgpack to write."""
import socket
import struct
import threading

GREETING = b"\xff" + bytes(8) + b"\x7f" + bytes([3, 0]) + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else (b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value))
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    if isinstance(value, bytes):
        return b"\xc4" + bytes([len(value)]) + value
    if isinstance(value, dict):
        return b"\xde" + struct.pack(">H", len(value)) + b"".join(pack(key) + pack(one) for key, one in value.items())
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))


def frame(body, flags=0):
    return (bytes([flags, len(body)]) if len(body) < 256 else bytes([flags | LONG]) + struct.pack(">Q", len(body))) + body


def ready(kind):
    return frame(b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind.encode(), COMMAND)


class Link:
    def __init__(self, link, kind):
        self.link, self.file, self.lock = link, link.makefile("rb"), threading.Lock()
        link.sendall(GREETING)
        self.file.read(64)
        link.sendall(ready(kind))

    def send(self, *parts):
        with self.lock:
            self.link.sendall(b"".join(frame(part, MORE if i + 1 < len(parts) else 0) for i, part in enumerate(parts)))

    def receive(self):
        """One message's parts; none: the peer has gone. Commands are answered here."""
        parts = []
        while True:
            head = self.file.read(1)
            if not head:
                return None
            size = self.file.read(8 if head[0] & LONG else 1)
            body = self.file.read(int.from_bytes(size, "big"))
            if head[0] & COMMAND:
                if body.startswith(b"\x04PING"):
                    with self.lock:
                        self.link.sendall(frame(b"\x04PONG" + body[7:], COMMAND))
                continue
            parts.append(body)
            if not head[0] & MORE:
                return parts


class Publisher:
    """`form`: "map", or "array" as before June 2026. What it says is kept for those who missed it; `dropped` numbers are not sent."""

    def __init__(self, host, port, replay_port, form):
        self.form, self.lock, self.links, self.batches, self.replays, self.next = form, threading.Lock(), [], {}, 0, 0
        self.dropped = set()
        self.sockets = [self.listen(host, port, self.publish_to), self.listen(host, replay_port, self.replay_to)]

    @staticmethod
    def listen(host, port, serve):
        listener = socket.create_server((host, port))

        def accept():
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(link,), daemon=True).start()
        threading.Thread(target=accept, daemon=True).start()
        return listener

    def publish_to(self, link):
        try:
            one = Link(link, "PUB")
            with self.lock:
                self.links.append(one)
            while one.receive() is not None:
                pass
        except OSError:
            pass

    def replay_to(self, link):
        try:
            one = Link(link, "ROUTER")
            while (parts := one.receive()) is not None:
                self.replays += 1
                begin = int.from_bytes(parts[-1], "big")
                with self.lock:
                    again = [(number, batch) for number, batch in sorted(self.batches.items()) if number >= begin]
                for number, batch in again:
                    one.send(b"", struct.pack(">q", number), batch)
                one.send(b"", struct.pack(">q", -1), b"")
        except OSError:
            pass

    def say(self, *events):
        """Each a (name, fields in their order)."""
        if self.form == "map":
            batch = {"ts": 1.0, "events": [{"type": name, **fields} for name, fields in events], "data_parallel_rank": 0}
        else:
            batch = [1.0, [[name, *fields.values()] for name, fields in events], 0]
        with self.lock:
            number, self.next = self.next, self.next + 1
            self.batches[number] = pack(batch)
            if number in self.dropped:
                return
            for one in self.links:
                try:
                    one.send(b"", struct.pack(">q", number), self.batches[number])
                except OSError:
                    pass

    def close(self):
        for one in self.sockets:
            one.close()
        for one in self.links:
            one.link.close()
