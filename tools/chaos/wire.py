"""Bytes to and from a server: HTTP/1.1, WebSocket and gRPC, as much of them as the load needs.

Written by hand, so that a stream can be left, stalled or broken at any byte, and nothing is retried or
forgiven behind the checker's back.
"""
import asyncio
import base64
import json
import os
import socket
import ssl
import struct


class Cut(Exception):
    """The connection ended before the answer did."""


LOST = (asyncio.IncompleteReadError, ConnectionError, BrokenPipeError, TimeoutError, ssl.SSLError)
HANDSHAKE_S = 600  # of which a frozen machine may take most
BODY_MAX = 64 << 20


CONTEXTS = {}


def tls_context(ca_file, protocol):
    """Of clients that trust `ca_file` and speak `protocol` behind it."""
    context = CONTEXTS.get((ca_file, protocol))
    if context is None:
        context = CONTEXTS[ca_file, protocol] = ssl.create_default_context(cafile=ca_file)
        context.set_alpn_protocols([protocol])
    return context


class Connection:
    """A socket, by way of the proxy if `faults` says what shall happen there; over TLS if there is a context."""

    def __init__(self, reader, writer, pause):
        self.reader, self.writer, self.pause = reader, writer, pause
        self.sent_at, self.begun = float("inf"), False  # when a question was out; is it being answered

    @classmethod
    async def open(cls, port, proxy_port=None, faults=None, small_buffers=False, pause=0.0, tls=None):
        sock = socket.socket()
        sock.setblocking(False)
        if small_buffers:  # else the kernel reads megabytes ahead of a slow reader
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # Segments that fit, as on any real network: to a window below one segment the kernel only sends probes,
            # and gives up in the end.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", proxy_port if faults else port))
            if faults:
                await asyncio.get_running_loop().sock_sendall(sock, json.dumps({**faults, "to": port}).encode() + b"\n")
            secure = {"ssl": tls, "server_hostname": "localhost", "ssl_handshake_timeout": HANDSHAKE_S} if tls else {}
            limit = 2048 if small_buffers else 1 << 17
            reader, writer = await asyncio.open_connection(sock=sock, limit=limit, **secure)
        except (OSError, asyncio.IncompleteReadError) as error:
            sock.close()
            raise Cut(f"connect: {error!r}") from error
        return cls(reader, writer, pause)

    async def send(self, data):
        try:
            self.writer.write(data)
            await self.writer.drain()
        except LOST as error:
            raise Cut(f"send: {error!r}") from error

    async def exactly(self, count):
        try:
            return await self.reader.readexactly(count)
        except LOST as error:
            raise Cut(f"read: {error!r}") from error

    async def until(self, end):
        try:
            return await self.reader.readuntil(end)
        except LOST as error:
            raise Cut(f"read: {error!r}") from error

    @property
    def encrypted(self):
        return self.writer.get_extra_info("ssl_object") is not None

    def half_close(self):
        """Not over TLS, which knows no such thing."""
        if self.writer.can_write_eof():
            self.writer.write_eof()

    def close(self, reset=False):
        if reset:
            sock = self.writer.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()

    # ---- HTTP

    @staticmethod
    def request(method, path, body=None, headers=()):
        head = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        if body is not None:
            head += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
        head += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join(head + ["", ""]).encode() + (body or b"")

    async def head(self):
        """Status and headers by lower-case name; interim answers are passed over."""
        while True:
            lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status != 100:
                pairs = (line.split(":", 1) for line in lines[1:] if line)
                return status, {name.lower(): value.strip() for name, value in pairs}

    async def pieces(self, headers):
        """The body as it comes; ends only where the framing says that it is whole."""
        if "content-length" in headers:
            yield await self.exactly(int(headers["content-length"]))
            return
        if headers.get("transfer-encoding") != "chunked":
            raise Cut("an answer without framing")
        while True:
            size = int((await self.until(b"\r\n"))[:-2], 16)
            data = await self.exactly(size + 2)
            if data[-2:] != b"\r\n":
                raise ValueError("a chunk without its end")
            if size == 0:
                return
            yield data[:-2]
            if self.pause:
                await asyncio.sleep(self.pause)

    async def body(self, headers):
        out = bytearray()
        async for piece in self.pieces(headers):
            out += piece
            if len(out) > BODY_MAX:
                raise ValueError("an answer without end")
        return bytes(out)

    async def events(self, headers):
        """(event, data) of a stream of server-sent events."""
        text = bytearray()
        async for piece in self.pieces(headers):
            text += piece
            while (end := text.find(b"\n\n")) >= 0:
                block, text = bytes(text[:end]), text[end + 2:]
                name, data = "", []
                for line in block.decode().split("\n"):
                    if line.startswith("event: "):
                        name = line[7:]
                    elif line.startswith("data: "):
                        data.append(line[6:])
                    elif not line.startswith(":"):
                        raise ValueError(f"no line of an event: {line[:100]!r}")
                if data:
                    yield name, "\n".join(data)
        if text:
            raise ValueError(f"half an event at the end: {bytes(text[:100])!r}")

    # ---- WebSocket

    async def upgrade(self, path):
        key = base64.b64encode(os.urandom(16)).decode()
        await self.send(self.request("GET", path, None, (
            ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key))))
        return await self.head()

    async def send_frame(self, payload, opcode=1):
        mask = os.urandom(4)
        size = len(payload)
        head = bytes([0x80 | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += b"\xfe" + struct.pack(">H", size)
        else:
            head += b"\xff" + struct.pack(">Q", size)
        pad = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")
        await self.send(head + mask + masked)

    async def frame(self):
        """(opcode, payload) of the next text or close; pings are answered."""
        while True:
            first, second = await self.exactly(2)
            size = second & 0x7F
            if size == 126:
                size = struct.unpack(">H", await self.exactly(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", await self.exactly(8))[0]
            payload = await self.exactly(size)
            opcode = first & 15
            if first & 0x80 == 0 or second & 0x80:
                raise ValueError("a frame that no server sends")
            if opcode == 9:
                await self.send_frame(payload, 10)
            elif opcode in (1, 8):
                if self.pause:
                    await asyncio.sleep(self.pause)
                return opcode, payload


# ---- protobuf and gRPC

def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, value):
    """A field of a message: an integer, a text, or a message that is bytes already."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """(number, value) of a message: integers, and bytes."""
    def read(at):
        number = shift = 0
        while True:
            byte = data[at]
            number |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return number, at
    at = 0
    while at < len(data):
        tag, at = read(at)
        if tag & 7 == 0:
            value, at = read(at)
        elif tag & 7 == 2:
            size, at = read(at)
            value, at = data[at:at + size], at + size
        elif tag & 7 == 5:
            value, at = data[at:at + 4], at + 4
        elif tag & 7 == 1:
            value, at = data[at:at + 8], at + 8
        else:
            raise ValueError(f"wire type {tag & 7}")
        yield tag >> 3, value


DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
CANCEL = 8


class GrpcCall:
    """One call on a connection of its own. HPACK without a dynamic table: we say that we have none."""

    def __init__(self, connection):
        self.connection = connection
        # Who reads slowly says so by his window; pings are answered at once, as every client's library does.
        self.window = 4096 if connection.pause else 1 << 20
        self.status, self.message = None, ""

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    async def start(self, method, message, timeout=None, metadata=()):
        """`message`: all that the client says, or a list of it."""
        messages = message if isinstance(message, list) else [message]
        said = b"".join(b"\0" + struct.pack(">I", len(one)) + one for one in messages)

        def literal(name, value):
            return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        head = b"".join(literal(name, value) for name, value in (
            (":method", "POST"), (":scheme", "https" if self.connection.encrypted else "http"), (":path", f"/pelton.v1.Inference/{method}"),
            (":authority", "localhost"), ("te", "trailers"), ("content-type", "application/grpc"),
            *((("grpc-timeout", timeout),) if timeout else ()), *metadata))
        settings = struct.pack(">HIHI", 1, 0, 4, self.window)  # no table; the window of a stream
        await self.connection.send(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(SETTINGS, 0, 0, settings) +
            self.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20)) +
            self.frame(HEADERS, 4, 1, head) +
            self.frame(DATA, 1, 1, said))

    async def cancel(self):
        await self.connection.send(self.frame(RST_STREAM, 0, 1, struct.pack(">I", CANCEL)))

    async def messages(self):
        """What comes, until the trailer; then `status` is set."""
        waiting, link = bytearray(), self.connection
        while True:
            head = await link.exactly(9)
            payload = await link.exactly(int.from_bytes(head[:3], "big"))
            kind, flags = head[3], head[4]
            if kind == SETTINGS and not flags & 1:
                await link.send(self.frame(SETTINGS, 1, 0, b""))
            elif kind == PING and not flags & 1:
                await link.send(self.frame(PING, 1, 0, payload))
            elif kind == DATA:
                waiting += payload
                if payload:
                    more = struct.pack(">I", len(payload))
                    await link.send(self.frame(WINDOW_UPDATE, 0, 0, more) + self.frame(WINDOW_UPDATE, 0, 1, more))
                while len(waiting) >= 5 and len(waiting) >= 5 + int.from_bytes(waiting[1:5], "big"):
                    end = 5 + int.from_bytes(waiting[1:5], "big")
                    message, waiting = bytes(waiting[5:end]), waiting[end:]
                    yield message
                if link.pause:
                    await asyncio.sleep(link.pause)
            elif kind == HEADERS:
                self.take_headers(payload)
                if flags & 1:
                    if self.status is None or waiting:
                        raise Cut("a call without its status")
                    return
            elif kind == RST_STREAM:
                raise Cut(f"reset with {int.from_bytes(payload, 'big')}")

    def take_headers(self, block):
        def read(at, bits):
            number, at = block[at] & (1 << bits) - 1, at + 1
            if number < (1 << bits) - 1:
                return number, at
            shift = 0
            while True:
                byte = block[at]
                number, at, shift = number + ((byte & 127) << shift), at + 1, shift + 7
                if byte < 128:
                    return number, at

        def text(at):
            huffman = block[at] & 128
            size, at = read(at, 7)
            return (None if huffman else block[at:at + size]), at + size
        at = 0
        while at < len(block):
            byte = block[at]
            if byte & 128:
                _, at = read(at, 7)
                continue
            if byte & 224 == 32:
                _, at = read(at, 5)
                continue
            index, at = read(at, 6 if byte & 64 else 4)
            name = None
            if index == 0:
                name, at = text(at)
            value, at = text(at)
            if name == b"grpc-status" and value is not None:
                self.status = int(value)
            elif name == b"grpc-message" and value is not None:
                self.message = value.decode("utf-8", "replace")
