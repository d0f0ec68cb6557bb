"""A server that makes images and videos, for tests: OpenAI's /v1/images and /v1/videos as diffusion engines have them. It takes real
time (steps times pixels times frames, one request after the other) and its pictures are real PNGs. What it makes is a function of
(prompt, size), so that a test knows every byte; a fault may be asked of it.
"""
import base64
import email
import email.policy
import hashlib
import http.server
import json
import select
import socket
import struct
import threading
import time
import zlib

UNIT = 65536  # pixels of a step
BROKEN = ("die", "html", "busy", "half", "never", "huge", "nameless")  # answers that are none


def png(width, height, seed):
    """A picture of stripes in the seed's colours."""
    colour = hashlib.sha256(f"{seed}".encode()).digest()
    row = b"\0" + (colour * (3 * width // len(colour) + 1))[:3 * width]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(row * height, 1)) + chunk(b"IEND", b""))


def read_png(data):
    """Width and height of a picture whose every chunk and row is whole."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n"), data[:16]
    at, pixels, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body), kind
        size = struct.unpack(">II", body[:8]) if kind == b"IHDR" else size
        pixels += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kind == b"IEND" and len(zlib.decompress(pixels)) == size[1] * (1 + 3 * size[0])
    return size


def content_block(seed):
    """64 KiB of a video's bytes."""
    return hashlib.shake_128(f"{seed}".encode()).digest(65536)


class Painter(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, model="paint", loras=(), unit_s=0.0005, content_bytes=1 << 20):
        self.model, self.loras, self.unit_s, self.content_bytes = model, loras, unit_s, content_bytes
        self.fault, self.asked, self.left, self.missed, self.sent, self.away = None, [], 0, 0, 0, False
        self.videos, self.lock, self.brush, self.free = {}, threading.Lock(), threading.Lock(), threading.Event()
        self.free.set()  # else it stands still amid its work
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def paint(self, units, gone=lambda: False, progress=lambda share: None):
        """Takes the time of so many units, behind whatever came before; False: who asked has left."""
        with self.brush:
            for done in range(16):
                if gone():
                    return False
                time.sleep(self.unit_s * units / 16)
                self.free.wait()
                progress((done + 1) / 16)
        return True

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def parse_request(self):
        self.close_connection = True
        return not self.server.away and super().parse_request()

    def whole(self, status, value, kind="application/json"):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, kind):
        """Of an answer whose length nobody knows."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def gone(self):
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def fields(self):
        """Of JSON or a form, and the files of that."""
        kind = self.headers["Content-Type"] or ""
        if not kind.startswith("multipart/"):
            return json.loads(self.body), {}
        message = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + self.body, policy=email.policy.HTTP)
        fields, files = {}, {}
        for part in message.iter_parts():
            name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
            if part.get_filename() is None:
                fields[name] = content.decode()
            else:
                files.setdefault(name, []).append(hashlib.sha256(content).hexdigest())
        return fields, files

    def broken(self, fault):
        if fault == "die":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault == "html":
            self.whole(200, b"<html>Bad gateway</html>", "text/html")
        elif fault == "busy":
            self.whole(429, {"error": {"message": "full"}})
        elif fault == "half":
            self.begin("application/json")
            self.wfile.write(b'{"created":1,"data":[{"b64_json":"' + b"A" * 200000)
        elif fault == "never":
            while not self.gone():
                time.sleep(0.01)
            self.server.left += 1
        elif fault == "huge":
            self.begin("application/json")
            self.wfile.write(b'{"created":1,"data":[{"b64_json":"')
            for _ in range(1 << 14):
                self.wfile.write(b"A" * 65536)
                self.server.sent += 65536
        elif fault == "nameless":
            self.whole(200, {"object": "video", "status": "queued"})
        if fault in ("die", "never"):
            self.close_connection = True

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.body, dict(self.headers)))
        if self.server.fault in BROKEN:
            return self.broken(self.server.fault)
        if self.path.startswith("/v1/images/"):
            return self.images()
        if self.path == "/v1/videos":
            return self.begin_video()
        if self.path.endswith("/cancel"):
            return self.end_video(self.path.split("/")[3], "cancelled")
        return self.whole(404, {"error": {"message": "no such path"}})

    @staticmethod
    def size(fields, otherwise):
        return [int(side) for side in fields.get("size", otherwise).split("x")]

    def images(self):
        fields, files = self.fields()
        width, height = self.size(fields, "256x256")
        count, steps = int(fields.get("n", 1)), int(fields.get("num_inference_steps", 4))
        pictures = [png(width, height, f"{fields['prompt']} {i}") for i in range(count)]
        units = count * steps * width * height / UNIT
        if str(fields.get("stream", "")).lower() == "true":
            return self.stream(pictures, units)
        if not self.server.paint(units, self.gone):
            self.server.left += 1
            self.close_connection = True
            return None
        data = [{"b64_json": base64.b64encode(one).decode()} for one in pictures]
        return self.whole(200, {"created": int(time.time()), "data": data, "files": files, "steps": steps})

    def stream(self, pictures, units):
        self.begin("text/event-stream")
        for i, one in enumerate(pictures):
            for name, more in (("partial_image", {"partial_image_index": 0}), ("completed", {"usage": {"total_tokens": 1}})):
                self.server.paint(units / 2 / len(pictures))
                if name == "completed" and self.server.fault == "cut":
                    return
                value = {"type": f"image_generation.{name}", "b64_json": base64.b64encode(one).decode(), "index": i, **more}
                self.wfile.write(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode())
                self.wfile.flush()

    def begin_video(self):
        fields, _ = self.fields()
        width, height = self.size(fields, "256x256")
        frames = int(fields.get("num_frames") or 24 * int(fields.get("seconds", 1)))
        units = frames * int(fields.get("num_inference_steps", 4)) * width * height / UNIT
        with self.server.lock:
            name = f"video_{self.server.server_port}_{len(self.server.videos)}"
            video = {"id": name, "object": "video", "model": self.server.model, "status": "queued", "progress": 0,
                     "created_at": time.time_ns(), "prompt": fields["prompt"]}
            self.server.videos[name] = video

        def note(share):
            if video["status"] != "cancelled":
                video["status"], video["progress"] = "in_progress", int(100 * share)

        def make():
            if self.server.paint(units, lambda: video["status"] == "cancelled", note):
                video["status"] = "completed"
        threading.Thread(target=make, daemon=True).start()
        self.whole(200, video)

    def end_video(self, name, status):
        video = self.server.videos.get(name)
        if video is None:
            self.server.missed += 1
            return self.whole(404, {"error": {"message": "no such video"}})
        video["status"] = status
        return self.whole(200, video)

    def do_GET(self):
        server, parts = self.server, self.path.split("?")[0].split("/")
        if self.path == "/v1/models":
            cards = [{"id": server.model}, *({"id": one, "parent": server.model} for one in server.loras)]
            return self.whole(200, {"object": "list", "data": cards})
        if server.fault == "lists html" and len(parts) == 3:
            return self.whole(200, b"<html>", "text/html")
        if parts[:3] == ["", "v1", "videos"] and len(parts) == 3:
            return self.whole(200, {"object": "list", "data": list(server.videos.values())})
        video = server.videos.get(parts[3]) if parts[:3] == ["", "v1", "videos"] else None
        if video is None:
            server.missed += 1
            return self.whole(404, {"error": {"message": "no such video"}})
        if len(parts) == 4:
            return self.whole(200, video)
        if server.fault == "html content":
            return self.whole(200, b"<html>", "text/html")
        self.send_response(200)
        self.send_header("Content-Type", "video/mp4")
        self.send_header("Content-Length", str(server.content_bytes))
        self.end_headers()
        block = content_block(video["prompt"])
        for at in range(0, server.content_bytes, len(block)):
            if server.fault == "cut content" and at > 4 * len(block):
                self.close_connection = True
                return None
            self.wfile.write(block[:server.content_bytes - at])
        return None

    def do_DELETE(self):
        name = self.path.split("/")[3]
        if self.server.videos.pop(name, None) is None:
            self.server.missed += 1
            return self.whole(404, {"error": {"message": "no such video"}})
        return self.whole(200, {"id": name, "object": "video.deleted", "deleted": True})
