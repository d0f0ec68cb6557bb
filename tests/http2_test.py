#!/usr/bin/env python3
"""HTTP/2 as its clients speak it: curl in the clear, over TLS and at a Unix socket, Node's own http2 with many streams at a
time, and nghttp's h2load without an error (3 s; 60 s with PELTON_FULL=1); through a gateway too.

usage: http2_test.py PELTON [UNITTEST ARGUMENTS]
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from ports import free_port
from tiers import FULL

TOP = pathlib.Path(__file__).resolve().parent.parent
PELTON = sys.argv[1]
MODEL = TOP / "models/pelton-box"
CHAT = {"model": "pelton-box", "messages": [{"role": "user", "content": "What is a Pelton wheel?"}], "temperature": 0}
SECONDS = "60" if FULL else "3"
NODE = r"""
const http2 = require('node:http2');
const [base, body] = process.argv.slice(1);
const session = http2.connect(base);
const ask = () => new Promise((resolve, reject) => {
  const stream = session.request({':method': 'POST', ':path': '/v1/chat/completions', 'content-type': 'application/json'});
  let text = '';
  stream.setEncoding('utf8');
  stream.on('data', (piece) => { text += piece; });
  stream.on('end', () => resolve(text));
  stream.on('error', reject);
  stream.end(body);
});
(async () => {
  const answers = await Promise.all(Array.from({length: 50}, ask));
  // Some are given up in the midst; the session goes on.
  for (let i = 0; i < 10; ++i) {
    const stream = session.request({':method': 'POST', ':path': '/v1/chat/completions', 'content-type': 'application/json'});
    stream.on('error', () => {});
    stream.end(JSON.stringify({...JSON.parse(body), stream: true}));
    stream.on('response', () => stream.close(http2.constants.NGHTTP2_CANCEL));
  }
  answers.push(await ask());
  console.log(JSON.stringify(answers.map((text) => JSON.parse(text).choices[0].message.content)));
  session.close();
})();
"""


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Process:
    """A pelton process that listens; its output is read up to the line that says where."""

    def __init__(self, *command):
        self.process = subprocess.Popen([PELTON, *(str(part) for part in command)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if found := re.search(r"listening on (\S+)", line):
                self.url = found[1].rstrip(",")
                return
        raise AssertionError(f"{command}: it does not listen")

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.stdout.close()


class Http2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="pelton-http2-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.server = Process("serve", MODEL, "--port", "0", "--threads", "1")
        cls.addClassCleanup(cls.server.end)

    def chat(self, url, *flags, **fields):
        return run("curl", "-sS", "--max-time", "60", *flags, f"{url}/v1/chat/completions", "-H",
                   "Content-Type: application/json", "-w", "\n%{http_version} %{http_code}", "-d", json.dumps(CHAT | fields))

    def check(self, said):
        body, _, status = said.rpartition("\n")
        self.assertEqual(status, "2 200", said)
        self.assertIn("turbine", json.loads(body)["choices"][0]["message"]["content"])

    def test_curl_in_the_clear(self):
        self.check(self.chat(self.server.url, "--http2-prior-knowledge"))
        # An offer to change over is not taken: HTTP/1.1 goes on.
        said = self.chat(self.server.url, "--http2")
        self.assertTrue(said.endswith("1.1 200"), said)

    def test_a_stream_is_that_of_http_1(self):
        def events(*flags):
            said = self.chat(self.server.url, *flags, stream=True)
            return [json.loads(line[6:])["choices"][0]["delta"] for line in said.splitlines()
                    if line.startswith("data: {")]

        self.assertGreater(len(events()), 5)
        self.assertEqual(events("--http2-prior-knowledge"), events())

    def test_over_tls_it_is_agreed_on(self):
        key, certificate = self.work / "key.pem", self.work / "cert.pem"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate)
        flags = ["serve", MODEL, "--port", "0", "--threads", "1", "--tls-cert", certificate, "--tls-key", key]
        for which, version in (("on", "2"), ("off", "1.1")):
            server = Process(*flags, "--http2", which)
            try:
                said = self.chat(server.url, "--cacert", certificate)
                self.assertTrue(said.endswith(f"\n{version} 200"), said)
                if which == "off":
                    return
                self.assertTrue(self.chat(server.url, "--cacert", certificate, "--http1.1").endswith("1.1 200"))
            finally:
                server.end()

    def test_at_a_unix_socket(self):
        path = self.work / "socket"
        server = Process("serve", MODEL, "--uds", path, "--threads", "1")
        try:
            self.check(self.chat("http://localhost", "--unix-socket", path, "--http2-prior-knowledge"))
            said = self.chat("http://localhost", "--unix-socket", path)
            self.assertTrue(said.endswith("1.1 200"), said)
        finally:
            server.end()

    def test_many_streams_of_node_at_a_time(self):
        found = json.loads(run("node", "-e", NODE, self.server.url, json.dumps(CHAT)))
        self.assertEqual(len(found), 51)
        self.assertEqual(len(set(found)), 1)

    def test_h2load_is_clean(self):
        if shutil.which("h2load") is None:
            self.skipTest("h2load is not installed")
        body = self.work / "body.json"
        body.write_text(json.dumps(CHAT | {"max_tokens": 4}))
        said = run("h2load", "-D", SECONDS, "-c", "4", "-m", "8", "-d", body, "-H", "content-type: application/json",
                   f"{self.server.url}/v1/chat/completions")
        counts = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", said)
        self.assertIsNotNone(counts, said)
        self.assertGreater(int(counts[1]), 0, said)
        self.assertEqual([counts[2], counts[3], counts[4]], ["0", "0", "0"], said)
        self.assertIn(" 0 failed, 0 errored, 0 timeout", said)

    def test_through_a_gateway(self):
        port = free_port()
        key = self.work / "fleet.key"
        run(PELTON, "gateway", "--new-key", key)
        worker = Process("serve", MODEL, "--port", "0", "--fleet-port", port, "--fleet-key-file", key, "--threads", "1")
        self.addCleanup(worker.end)
        config = self.work / "gateway.toml"
        config.write_text(f"""[gateway]
listen = "127.0.0.1:0"
fleet_key_file = "{key}"
[[pool]]
name = "box"
model = "pelton-box"
[[worker]]
pool = "box"
url = "http://127.0.0.1:{port}"
""")
        gateway = Process("gateway", "--config", config)
        try:
            for _ in range(100):
                said = self.chat(gateway.url, "--http2-prior-knowledge")
                if said.endswith("2 200"):
                    break
                time.sleep(0.05)
            self.check(said)
        finally:
            gateway.end()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
