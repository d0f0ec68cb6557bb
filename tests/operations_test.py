#!/usr/bin/env python3
"""`pelton serve` as operators run it: configuration, TLS, SIGHUP, SIGTERM, CORS, core dumps, completion, manuals.

usage: operations_test.py BINARY
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None


class Operations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        cls.model = str(cls.folder / "model")
        subprocess.run([BINARY, "synth", "--like", str(ROOT / "testdata/demo_model.json"), cls.model], check=True,
                       capture_output=True)
        cls.script = cls.write("script.json", json.dumps({"step_ms": 1, "rules": [
            {"when": "", "then": "<|channel|>final<|message|>Short.<|return|>"},
            {"when": "two seconds", "then": ["<|channel|>final<|message|>", {"text": "and on ", "times": 1000},
                                             "end<|return|>"]},
            {"when": "endless", "then": ["<|channel|>final<|message|>", {"text": "and on ", "times": 9000}]}]}))
        cls.ca, cls.ca_key = cls.authority("ca")
        cls.cert, cls.key = cls.certificate("server", "one")

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def write(cls, name, text):
        path = cls.folder / name
        path.write_text(text)
        return str(path)

    @classmethod
    def openssl(cls, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)

    @classmethod
    def authority(cls, name):
        cert, key = cls.folder / f"{name}.pem", cls.folder / f"{name}.key"
        cls.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2,
                    "-subj", f"/CN={name}", "-keyout", key, "-out", cert)
        return str(cert), str(key)

    @classmethod
    def certificate(cls, name, common):
        """Files NAME.pem and NAME.key for localhost, from the authority; its subject is COMMON."""
        cert, key, ask = cls.folder / f"{name}.pem", cls.folder / f"{name}.key", cls.folder / f"{name}.csr"
        names = cls.write(f"{name}.ext", "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        cls.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={common}",
                    "-keyout", key, "-out", ask)
        cls.openssl("x509", "-req", "-in", ask, "-CA", cls.ca, "-CAkey", cls.ca_key, "-CAcreateserial", "-days", 2,
                    "-extfile", names, "-out", cert)
        return str(cert), str(key)

    def serve(self, *flags, env=None, model=True, listeners=1, stderr=None):
        words = [BINARY, "serve", *([self.model] if model else []), "--executor", "modelled:" + self.script]
        if "--port" not in flags:
            words += ["--port", "0"]
        errors = open(self.folder / "stderr", "wb") if stderr is None else stderr
        server = subprocess.Popen([*words, *flags], stdout=subprocess.PIPE, stderr=errors,
                                  env={**os.environ, **(env or {})})
        if stderr is None:
            errors.close()

        def end():
            server.kill()
            server.wait()
            server.stdout.close()
        self.addCleanup(end)
        lines = [server.stdout.readline().decode().strip() for _ in range(listeners)]
        self.assertTrue(lines[0].startswith("listening on http"), (lines, self.said()))
        server.ports = [int(line.rsplit(":", 1)[1]) for line in lines]
        server.url = lines[0].split(" ")[-1]
        return server

    def said(self):
        return (self.folder / "stderr").read_text()

    def wait_said(self, text, count=1):
        end = time.time() + 20
        while self.said().count(text) < count:
            self.assertLess(time.time(), end, f"{text!r} was not said: {self.said()}")
            time.sleep(0.02)

    def context(self, ca=None, client=None):
        context = ssl.create_default_context(cafile=ca or self.ca)
        if client:
            context.load_cert_chain(*client)
        return context

    def connect(self, port, context=None):
        if context is None:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        return http.client.HTTPSConnection("localhost", port, timeout=30, context=context)

    def ask(self, port, path, body=None, context=None, key=None, method=None, headers=None, connection=None):
        own = connection or self.connect(port, context)
        all_headers = {**({"Authorization": "Bearer " + key} if key else {}), **(headers or {})}
        own.request(method or ("GET" if body is None else "POST"), path,
                    None if body is None else json.dumps(body), all_headers)
        response = own.getresponse()
        text = response.read().decode()
        if connection is None:
            own.close()
        return response, text

    def chat(self, port, words="hello", stream=False, **rest):
        return self.ask(port, "/v1/chat/completions",
                        {"messages": [{"role": "user", "content": words}], "stream": stream}, **rest)

    def peer_name(self, port, ca=None):
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            with self.context(ca).wrap_socket(plain, server_hostname="localhost") as tls:
                return dict(part[0] for part in tls.getpeercert()["subject"])["commonName"]

    # ---- configuration

    def test_a_file_configures_and_what_is_printed_says_the_same(self):
        file = self.write("own.toml", f'# ours\nmodel = "{self.model}"\nexecutor = "modelled:{self.script}"\n'
                                      'port = 0\nserved-model-name = "from-file"\nmax-num-seqs = 3\n')
        config = [BINARY, "serve", "--config", file]
        printed = subprocess.run([*config, "--print-config", "--api-key", "sesame"], capture_output=True, timeout=60,
                                 check=True, env={**os.environ, "PELTON_MAX_NUM_SEQS": "4"}).stdout.decode()
        self.assertRegex(printed, r"(?m)^max-num-seqs = 4 +# \$PELTON_MAX_NUM_SEQS$")
        self.assertRegex(printed, r'(?m)^served-model-name = \["from-file"\] +# .*own\.toml:5$')
        self.assertRegex(printed, r'(?m)^host = "127.0.0.1" +# default$')
        self.assertNotIn("sesame", printed)
        again = self.write("again.toml", printed)
        twice = subprocess.run([BINARY, "serve", "--config", again, "--print-config"], capture_output=True, timeout=60,
                               check=True).stdout.decode()

        def values(text):
            return re.sub(r"\n\n+", "\n", every_value(text)).strip()

        def every_value(text):
            return re.sub(r"(?m)^(# .*|(.*?) +# .*)$", lambda match: match[2] or "", text)
        self.assertEqual(values(printed), values(twice))
        server = self.serve("--config", again, model=False)
        self.assertIn('"from-file"', self.ask(server.ports[0], "/v1/models")[1])

    def test_mistakes_in_a_file_name_the_line(self):
        for text, wanted in (("port = 1\n\nprot = 2", ":3: unknown name 'prot'; did you mean 'port'?"),
                             ("port = 99999", ":1: --port must be between 0 and 65535"),
                             ("port = ", ":1: "), ("a = \n[", ":1: ")):
            file = self.write("bad.toml", text)
            done = subprocess.run([BINARY, "serve", self.model, "--config", file], capture_output=True, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(file + wanted, done.stderr.decode())

    def test_A7_a_files_value_without_effect_is_a_mistake_too(self):
        for text, wanted in (("access-log-file = \"x\"", ":1: access-log-file has an effect only with --access-log"),
                             ("\nopen = true", ":2: open has an effect only with --host"),
                             ("trace-share = 0.5", ":1: --trace-share has no effect without a collector"),
                             ("current-date = \"2026-02-30\"", ":1: --current-date wants a day"),
                             ("admin-port = 0\nadmin-host = \"nowhere\"", ":2: 'nowhere' is not an IPv4"),
                             ("host = \"nowhere\"\nopen = true", ":1: 'nowhere' is not an IPv4"),
                             ("current-date = \"\"", ":1: --current-date wants a day"),
                             ("tls-cert = \"x\"", "--tls-cert and --tls-key go together")):
            self.refused(3, wanted, "--config", self.write("without_effect.toml", text))
        for env, wanted in (({"PELTON_PORT": "many"}, "$PELTON_PORT: --port wants a whole number"),
                            ({"PELTON_CURRENT_DATE": "soon"}, "$PELTON_CURRENT_DATE: --current-date wants a day")):
            done = subprocess.run([BINARY, "serve", self.model, "--executor", "modelled:" + self.script],
                                  capture_output=True, timeout=60, check=False, env={**os.environ, **env})
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(wanted, done.stderr.decode())
        self.refused(2, "--current-date wants a day", "--current-date", "")
        self.refused(2, "--tls-cert and --tls-key go together", "--tls-cert", self.cert)
        # A variable is for all verbs: without an effect it says nothing; empty neither.
        self.serve("--port", "0", env={"PELTON_ACCESS_LOG_FILE": "/nowhere/x", "PELTON_OPEN": "1",
                                       "PELTON_CURRENT_DATE": ""})

    def test_a_key_that_no_client_could_send_is_an_error(self):
        for key, wanted in (("secret\n", "a line break"), ("a\r\nb", "a line break"), ("a\tb", "control character"),
                            ("a\x7fb", "control character"), (" a", "blank"), ("a ", "blank")):
            self.refused(3, wanted, "--api-key", key)
            self.refused(3, "$PELTON_API_KEY", env={"PELTON_API_KEY": key})

    def refused(self, code, wanted, *flags, env=None):
        done = subprocess.run([BINARY, "serve", self.model, "--executor", "modelled:" + self.script, "--port", "0", *flags],
                              capture_output=True, timeout=60, check=False, env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(wanted, done.stderr.decode())

    def test_D5_an_empty_key_is_an_error_wherever_it_stands(self):
        for name in ("api-key", "api-key-file", "tls-cert", "tls-key", "tls-client-ca", "reasoning-key-file"):
            variable = "PELTON_" + name.upper().replace("-", "_")
            for value in ("", " "):
                self.refused(3, f"${variable} is empty", env={variable: value})
                self.refused(3, f"--{name} is empty", "--" + name, value)
                self.refused(3, f"--{name} is empty", f"--{name}={value}")
                file = self.write("empty.toml", f'{name} = "{value}"\n')
                self.refused(3, f"{file}:1 is empty", "--config", file)
        self.refused(3, "$OPTION_API_KEY is empty", env={"OPTION_API_KEY": ""})
        self.refused(3, "holds no key", "--api-key-file", self.write("empty_keys", "\n# none\n"))

    def test_D10_wrong_days_and_limits_said_twice(self):
        for day in ("2026-02-30", "2026-13-01", "2026-00-10", "2025-02-29", "2026-1-1", "20260101", "2026-01-01 "):
            self.refused(2, "a day of the calendar", "--current-date", day)
        self.serve("--current-date", "2024-02-29")
        for limits in ("rpm=1 rpm=2", "tpm=5 tpm=5", "concurrent=1 rpm=1 concurrent=1"):
            self.refused(3, "keys_twice:2: ", "--api-key-file", self.write("keys_twice", f"\nsk-a alice {limits}\n"))

    def test_C9_beyond_this_machine_only_with_a_key_or_on_purpose(self):
        for host in ("0.0.0.0", "::", "::ffff:0.0.0.0"):
            self.refused(3, "or --open if that is meant", "--host", host)
        self.refused(3, "or --open if that is meant", env={"PELTON_HOST": "0.0.0.0"})
        for host in ("127.0.0.1", "127.0.0.2", "localhost"):
            self.serve("--host", host)
        printed = subprocess.run([BINARY, "serve", self.model, "--api-key", "sesame", "--host", "0.0.0.0",
                                  "--print-config"], capture_output=True, timeout=60, check=True).stdout.decode()
        self.assertLess(printed.index("# WARNING: api-key is in effect and is left out here"), printed.index("host = "))
        self.assertNotIn("sesame", printed)
        # What the warning is about: with the copied file alone nobody would be asked for a key.
        self.refused(3, "nobody is asked for a key", "--config", self.write("copied.toml", printed))
        done = subprocess.run([BINARY, "serve", self.model, "--host", "0.0.0.0", "--open", "--print-config"],
                              capture_output=True, timeout=60, check=True).stdout.decode()
        self.assertRegex(done, r"(?m)^open = true ")

    def test_C9_the_admin_listener_beyond_this_machine_only_with_certificates_or_on_purpose(self):
        for host in ("0.0.0.0", "::"):
            self.refused(3, "--admin-host", "--admin-port", "0", "--admin-host", host)
        # It asks for no key, so a key is no reason.
        self.refused(3, "or --open if that is meant", "--admin-port", "0", "--admin-host", "0.0.0.0", "--api-key", "k")
        self.refused(3, "--tls-client-ca without --no-admin-tls", "--admin-port", "0", "--admin-host", "0.0.0.0",
                     "--no-admin-tls", "--tls-cert", self.cert, "--tls-key", self.key, "--tls-client-ca", self.ca)
        for flags in (("--admin-host", "127.0.0.2"), ("--admin-host", "127.0.0.1", "--api-key", "k")):
            self.serve("--admin-port", "0", *flags, listeners=2)
        # Both of these are accepted; nothing is started that listens beyond this machine.
        certified = ("--tls-cert", self.cert, "--tls-key", self.key, "--tls-client-ca", self.ca)
        for flags in (("--open",), certified):
            subprocess.run([BINARY, "serve", self.model, "--admin-port", "0", "--admin-host", "0.0.0.0", *flags,
                            "--print-config"], capture_output=True, timeout=60, check=True)

    # ---- TLS

    def test_tls_at_every_listener(self):
        server = self.serve("--tls-cert", self.cert, "--tls-key", self.key, "--admin-port", "0", "--grpc-port", "0",
                            listeners=3)
        self.assertTrue(server.url.startswith("https://"))
        public, admin, grpc = server.ports
        self.assertIn("Short.", self.chat(public, context=self.context())[1])
        _, streamed = self.chat(public, stream=True, context=self.context())
        self.assertIn("data: [DONE]", streamed)
        _, metrics = self.ask(admin, "/metrics", context=self.context())
        expiry = float(re.search(r"(?m)^pelton_tls_certificate_expiry_timestamp_seconds\S* (\S+)$", metrics)[1])
        self.assertAlmostEqual(expiry, time.time() + 2 * 86400, delta=3600)
        # gRPC speaks HTTP/2 over the same certificate.
        context = self.context()
        context.set_alpn_protocols(["h2"])
        with socket.create_connection(("127.0.0.1", grpc), 10) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as tls:
                self.assertEqual(tls.selected_alpn_protocol(), "h2")
        # Plain HTTP is told so and gets nothing else.
        response, body = self.chat(public)
        self.assertEqual(response.status, 400)
        self.assertIn("https", body)
        bench = subprocess.run([BINARY, "bench", "serve", "--base-url", server.url.replace("127.0.0.1", "localhost"),
                                "--ca-file", self.ca, "--backend", "openai-chat", "--num-prompts", "5",
                                "--dataset-name", "random", "--input-len", "8", "--output-len", "4"],
                               capture_output=True, timeout=120, check=False)
        self.assertEqual(bench.returncode, 0, bench.stderr.decode())
        untrusting = subprocess.run([BINARY, "bench", "serve", "--base-url", server.url, "--num-prompts", "1"],
                                    capture_output=True, timeout=120, check=False)
        self.assertIn(b"certificate verify failed", untrusting.stderr)

    def test_an_admin_listener_may_stay_plain(self):
        server = self.serve("--tls-cert", self.cert, "--tls-key", self.key, "--admin-port", "0", "--no-admin-tls",
                            listeners=2)
        self.assertEqual(self.ask(server.ports[1], "/health/ready")[0].status, 200)

    def test_clients_with_certificates(self):
        server = self.serve("--tls-cert", self.cert, "--tls-key", self.key, "--tls-client-ca", self.ca)
        port = server.ports[0]
        mine = self.certificate("client", "a client")
        self.assertIn("Short.", self.chat(port, context=self.context(client=mine))[1])
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.chat(port, context=self.context())

    def test_mistakes_with_tls_are_told_before_anything_starts(self):
        def refused(code, wanted, *flags):
            done = subprocess.run([BINARY, "serve", self.model, *flags], capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(wanted, done.stderr.decode())
        other, other_key = self.certificate("other", "other")
        refused(2, "go together", "--tls-cert", self.cert)
        refused(2, "needs --tls-cert", "--tls-client-ca", self.ca)
        refused(3, "is not the key of", "--tls-cert", self.cert, "--tls-key", other_key)
        refused(3, "holds no certificate", "--tls-cert", self.key, "--tls-key", self.key)
        refused(3, "/nowhere", "--tls-cert", "/nowhere", "--tls-key", self.key)
        del other

    # ---- SIGHUP

    def test_a_reload_changes_certificates_keys_and_log_level_and_cuts_nothing(self):
        cert, key = self.certificate("mine", "before")
        keys = self.write("keys", "sk-old alice\n")
        config = self.write("reload.toml", f'tls-cert = "{cert}"\ntls-key = "{key}"\napi-key-file = "{keys}"\n'
                                           'log-level = "info"\nadmin-port = 0\ngrpc-port = 0\n')
        server = self.serve("--config", config, "--no-admin-tls", listeners=3)
        port, admin, grpc = server.ports
        self.assertEqual(self.peer_name(port), "before")
        stays = self.connect(port, self.context())
        self.assertEqual(self.chat(port, connection=stays, key="sk-old")[0].status, 200)
        # A stream that began before goes on to its end.
        streaming = self.connect(port, self.context())
        streaming.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": [{"role": "user", "content": "two seconds"}], "stream": True}),
            {"Authorization": "Bearer sk-old"})
        stream = streaming.getresponse()
        first = stream.readline()
        self.assertTrue(first.startswith(b"data:"))

        self.certificate("mine", "after")
        self.write("keys", "sk-new alice\n")
        self.write("reload.toml", pathlib.Path(config).read_text().replace("info", "warning") + "max-num-seqs = 2\n")
        server.send_signal(signal.SIGHUP)
        self.wait_said("max-num-seqs has changed, which takes a new start")
        self.assertEqual(self.peer_name(port), "after")
        self.assertEqual(self.chat(port, context=self.context(), key="sk-new")[0].status, 200)
        self.assertEqual(self.chat(port, context=self.context(), key="sk-old")[0].status, 401)
        self.assertEqual(self.chat(port, connection=stays, key="sk-new")[0].status, 200)  # the same connection
        rest = stream.read().decode()
        self.assertIn("data: [DONE]", rest)
        self.assertIn('"finish_reason":"stop"', rest.replace(" ", ""))
        end = time.time() + 10
        while self.peer_name(grpc) != "after":
            self.assertLess(time.time(), end, "gRPC goes on with the old certificate")
            time.sleep(0.1)

        # Whatever is wrong with the new files, all stays.
        for count, (name, text, wanted) in enumerate((
                ("keys", "# none\n", "holds no key"), ("keys", "a b c d\n", "keys:1"),
                ("mine.pem", "no certificate", "mine.pem"), ("reload.toml", "prot = 1\n", "reload.toml:1"),
                ("reload.toml", 'log-level = "loud"\n', "reload.toml:1"),
                ("reload.toml", f'admin-port = 0\napi-key-file = "{keys}"\n', "not turned on or off"),
                ("reload.toml", f'admin-port = 0\ntls-cert = "{cert}"\ntls-key = "{key}"\n', "goes on asking")), 1):
            good = (self.folder / name).read_text()
            self.write(name, text)
            server.send_signal(signal.SIGHUP)
            self.wait_said("all stays as it was", count)
            self.assertIn(wanted, self.said().split("all stays as it was")[-1])
            self.write(name, good)
            self.assertEqual(self.chat(port, context=self.context(), key="sk-new")[0].status, 200)
            self.assertEqual(self.peer_name(port), "after")
        _, metrics = self.ask(admin, "/metrics")
        self.assertRegex(metrics, r'(?m)^pelton_config_reloads_total\{[^}]*outcome="fine"\} 1$')
        self.assertRegex(metrics, r'(?m)^pelton_config_reloads_total\{[^}]*outcome="failed"\} 7$')
        self.assertRegex(metrics, r"(?m)^pelton_config_last_reload_successful\S* 0$")
        server.send_signal(signal.SIGHUP)
        end = time.time() + 10
        while not re.search(r"(?m)^pelton_config_last_reload_successful\S* 1$", self.ask(admin, "/metrics")[1]):
            self.assertLess(time.time(), end)
            time.sleep(0.05)

    def test_a_reload_without_an_operator_leaves_the_certificate(self):
        cert, key = self.certificate("guarded", "before")
        keys = self.write("operators", "sk-0123456789abcdef ann role=admin\n")
        server = self.serve("--tls-cert", cert, "--tls-key", key, "--api-key-file", keys, "--admin-port", "0", "--no-admin-tls", "--admin-keys", listeners=2)
        self.certificate("guarded", "after")
        self.write("operators", "sk-0123456789abcdef ann\n")
        server.send_signal(signal.SIGHUP)
        self.wait_said("all stays as it was: --admin-keys: no key has a role")
        self.assertEqual(self.peer_name(server.ports[0]), "before")
        self.write("operators", "sk-0123456789abcdef ann role=view\n")
        server.send_signal(signal.SIGHUP)
        self.wait_said("certificates, keys and log level are read anew")
        self.assertEqual(self.peer_name(server.ports[0]), "after")

    def test_E7_the_access_log_is_opened_again_and_other_signals_are_ignored(self):
        log = self.folder / "access.log"
        config = self.write("access.toml", 'log-level = "info"\n')
        server = self.serve("--access-log", "text", "--access-log-file", str(log), "--config", config)
        port = server.ports[0]

        def wait_for(path, words):
            end = time.time() + 20
            while not path.exists() or words not in path.read_text():
                self.assertLess(time.time(), end, f"{words} is not in {path}")
                time.sleep(0.02)
        self.ask(port, "/health", headers={"x-request-id": "first"})
        wait_for(log, "id=first")
        moved = self.folder / "access.log.1"
        log.rename(moved)
        # All that would end a process and means nothing here.
        for sent in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO,
                     signal.SIGPWR, 16, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGURG, signal.SIGWINCH, signal.SIGCHLD,
                     signal.SIGCONT, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)):
            server.send_signal(sent)
        server.send_signal(signal.SIGHUP)
        self.wait_said("read anew")
        self.ask(port, "/health", headers={"x-request-id": "second"})
        wait_for(log, "id=second")
        self.assertNotIn("id=second", moved.read_text())
        # Also where the configuration is wrong; and what cannot be opened leaves all as it was.
        log.rename(moved)
        self.write("access.toml", "prot = 1\n")
        server.send_signal(signal.SIGHUP)
        self.wait_said("all stays as it was")
        self.ask(port, "/health", headers={"x-request-id": "third"})
        wait_for(log, "id=third")
        log.rename(moved)
        log.mkdir()
        server.send_signal(signal.SIGHUP)
        self.wait_said("the access log stays")
        self.ask(port, "/health", headers={"x-request-id": "fourth"})
        wait_for(moved, "id=fourth")
        self.assertIsNone(server.poll())

    def test_D10_a_pipe_that_nobody_reads_is_an_error_at_once(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.refused(1, "a pipe that nobody reads", "--access-log", "text", "--access-log-file", str(pipe))
        self.refused(1, "a pipe that nobody reads", "--step-log", str(pipe))

    def test_E7_a_response_in_the_background_has_failed_after_a_kill(self):
        store = self.folder / "responses.db"
        flags = ("--response-store", f"sqlite:{store}")
        server = self.serve(*flags)
        self.assertEqual(os.stat(store).st_mode & 0o777, 0o600)  # D10
        _, text = self.ask(server.ports[0], "/v1/responses", {"input": "endless", "background": True})
        begun = json.loads(text)
        self.assertIn(begun["status"], ("queued", "in_progress"))
        server.kill()
        server.wait()
        server = self.serve(*flags)
        response, text = self.ask(server.ports[0], "/v1/responses/" + begun["id"])
        self.assertEqual(response.status, 200, text)
        ended = json.loads(text)
        self.assertEqual((ended["id"], ended["status"]), (begun["id"], "failed"))
        self.assertIn("the server ended", ended["error"]["message"])

    # ---- SIGTERM

    def start_stream(self, port, words):
        connection = self.connect(port)
        connection.request("POST", "/v1/chat/completions",
                           json.dumps({"messages": [{"role": "user", "content": words}], "stream": True}))
        response = connection.getresponse()
        self.assertTrue(response.readline().startswith(b"data:"))
        return response

    def test_readiness_goes_first_then_answers_end(self):
        server = self.serve("--drain-delay-seconds", "1", "--admin-port", "0", listeners=2)
        port, admin = server.ports
        stream = self.start_stream(port, "two seconds")
        server.send_signal(signal.SIGTERM)
        self.wait_said("not ready from now on")
        self.assertEqual(self.ask(port, "/ready")[0].status, 503)
        self.assertEqual(self.ask(admin, "/ready")[0].status, 503)
        self.assertEqual(self.ask(port, "/health")[0].status, 200)
        self.assertIn("Short.", self.chat(port)[1])  # a balancer that has not noticed yet
        self.wait_said("running answers get 25 seconds")
        self.assertIn(b"[DONE]", stream.read())
        self.assertEqual(server.wait(20), 0)

    def test_A10_stopped_while_it_loads_it_has_stopped_as_asked(self):
        cache = str(self.folder / "packed_cache")
        for sent in (signal.SIGTERM, signal.SIGINT):
            words = [BINARY, "serve", self.model, "--port", "0", "--weights", "int8", "--weights-cache", cache,
                     "--drain-seconds", "10", "--served-model-name", "m"]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
                lines = []
                while not lines or "packing" not in lines[-1]:
                    lines.append(server.stderr.readline())
                    self.assertTrue(lines[-1], lines)
                server.send_signal(sent)
                lines += server.stderr.readlines()
                self.assertEqual(server.wait(60), 0, lines)
                # Either while it packed, or it was that quick and served for a moment.
                self.assertRegex(lines[-1], "stopped while the model was being loaded|stopping: running answers")
                self.assertFalse([line for line in lines if line.startswith("pelton: ")], lines)
            shutil.rmtree(cache, ignore_errors=True)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one processor")
    def test_A1_the_first_start_has_the_threads_and_processors_of_the_second(self):
        def start():
            words = [BINARY, "serve", self.model, "--port", "0", "--weights", "int8", "--weights-cache",
                     self.folder / "first_start"]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
                port = int(server.stdout.readline().rsplit(":", 1)[1])
                info = json.loads(self.ask(port, "/server_info")[1])
                masks, end = [], time.monotonic() + 10
                # A thread has its maker's name until it runs.
                while "pelton-engine" not in [name for name, _ in masks] and time.monotonic() < end:
                    tasks = pathlib.Path(f"/proc/{server.pid}/task").iterdir()
                    masks = sorted((re.search(r"(?m)^Name:\s+(\S+)", text)[1],
                                    re.search(r"(?m)^Cpus_allowed_list:\s+(\S+)", text)[1])
                                   for text in ((task / "status").read_text() for task in tasks))
                server.terminate()
                log = server.communicate(timeout=60)[1]
            return info["runtime"]["threads"], masks, log
        first, second = start(), start()
        self.assertIn("packed: experts as shipped", first[2])
        self.assertNotIn("packed: experts as shipped", second[2])
        self.assertEqual(first[0], str(len(os.sched_getaffinity(0))))
        self.assertEqual(first[:2], second[:2])
        # C4: what is said at a start can be read.
        for line in first[2].splitlines():
            self.assertLess(len(line), 400, line)

    def test_a_drain_ends_in_time(self):
        server = self.serve("--drain-seconds", "0.5")
        stream = self.start_stream(server.ports[0], "endless")
        begun = time.time()
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(http.client.IncompleteRead):
            stream.read()
        self.assertEqual(server.wait(20), 0)
        self.assertLess(time.time() - begun, 8)

    def test_a_second_signal_aborts(self):
        for first, second, code in ((signal.SIGTERM, signal.SIGTERM, 143), (signal.SIGTERM, signal.SIGINT, 130),
                                    (signal.SIGINT, signal.SIGINT, 130)):
            server = self.serve("--drain-seconds", "60")
            stream = self.start_stream(server.ports[0], "endless")
            server.send_signal(first)
            self.wait_said("running answers get 60 seconds")
            begun = time.time()
            server.send_signal(second)
            self.assertEqual(server.wait(10), code)
            self.assertLess(time.time() - begun, 5)
            stream.close()

    # ---- who may ask

    def test_cors(self):
        server = self.serve("--cors-origin", "https://good.example", "http://localhost:3000", "--api-key", "k")
        port = server.ports[0]

        def allowed(origin, method="OPTIONS", path="/v1/chat/completions"):
            response, _ = self.ask(port, path, method=method, headers={"Origin": origin} if origin else {}, key="k")
            self.assertIsNone(response.getheader("Access-Control-Allow-Credentials"))
            return response.getheader("Access-Control-Allow-Origin")
        self.assertEqual(allowed("https://good.example"), "https://good.example")
        self.assertEqual(allowed("http://localhost:3000", "GET", "/v1/models"), "http://localhost:3000")
        for origin in ("null", "https://evil.example", "https://good.example.evil", "http://good.example", "", "*"):
            self.assertIsNone(allowed(origin), origin)
            self.assertIsNone(allowed(origin, "GET", "/v1/models"), origin)
        anyone = self.serve("--cors-origin", "*").ports[0]
        response, _ = self.ask(anyone, "/v1/models", headers={"Origin": "null"})
        self.assertEqual(response.getheader("Access-Control-Allow-Origin"), "*")
        self.assertIsNone(response.getheader("Access-Control-Allow-Credentials"))
        nobody = self.serve().ports[0]
        response, _ = self.ask(nobody, "/v1/models", headers={"Origin": "https://evil.example"})
        self.assertIsNone(response.getheader("Access-Control-Allow-Origin"))
        for path, status in (("/v1/chat/completions", 405), ("/v1/completions", 405), ("/v1/responses", 426)):
            self.assertEqual(self.ask(nobody, path, method="HEAD")[0].status, status, path)
        done = subprocess.run([BINARY, "serve", self.model, "--cors-origin", "good.example/"], capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"as browsers write it", done.stderr)

    def test_D4_host_names(self):
        """A page whose name was made to stand for 127.0.0.1 gets nothing, at any listener."""
        with_names = ("--allowed-host", "box.example", "--admin-port", "0", "--grpc-port", "0")
        for flags, listeners, good, bad in (
                (("--admin-port", "0"), 2, ("localhost", "127.0.0.1:80", "[::1]"), ("attacker.example", "box.example")),
                (with_names, 3, ("localhost", "BOX.example:443"), ("attacker.example", "a.box.example"))):
            server = self.serve(*flags, listeners=listeners)
            for port, path in ((server.ports[0], "/v1/models"), (server.ports[1], "/debug/ledger")):
                for host in good:
                    self.assertEqual(self.ask(port, path, headers={"Host": host})[0].status, 200, host)
                for host in bad:
                    headers = {"Host": host, "Origin": "http://" + host}
                    self.assertEqual(self.ask(port, path, headers=headers)[0].status, 403, host)
                    upgrade = {**headers, "Upgrade": "websocket", "Connection": "Upgrade",
                               "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
                    self.assertEqual(self.ask(port, "/v1/responses", headers=upgrade)[0].status, 403, host)
                self.assertEqual(self.ask(port, path, headers={"Host": "a b"})[0].status, 400)
        done = subprocess.run([BINARY, "serve", self.model, "--allowed-host", "box:80"], capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--allowed-host wants a host name", done.stderr)

    @unittest.skipIf(os.geteuid() != 0 and not hasattr(resource, "prlimit"), "cannot look")
    def test_no_core_dumps_unless_allowed(self):
        def limits(pid):
            text = pathlib.Path(f"/proc/{pid}/limits").read_text()
            return re.search(r"Max core file size +(\S+) +(\S+)", text).groups()
        self.assertEqual(limits(self.serve().pid), ("0", "0"))
        before = resource.getrlimit(resource.RLIMIT_CORE)
        mine = "unlimited" if before[0] == resource.RLIM_INFINITY else str(before[0])
        self.assertEqual(limits(self.serve("--allow-core-dumps").pid)[0], mine)
        if os.geteuid() != 0:
            return
        # As another user: what PR_SET_DUMPABLE takes away shows in who owns /proc/PID.
        user = 65534
        reachable = pathlib.Path("/tmp") / f"pelton-operations-{os.getpid()}"
        shutil.copytree(self.model, reachable / "model")
        shutil.copy(self.script, reachable / "script.json")
        self.addCleanup(shutil.rmtree, reachable)
        for flags, owner in (((), 0), (("--allow-core-dumps",), user)):
            with subprocess.Popen([BINARY, "serve", reachable / "model", "--port", "0", "--executor",
                                   f"modelled:{reachable}/script.json", *flags], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, user=user, group=user, extra_groups=[],
                                  env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"}) as server:
                port = int(server.stdout.readline().decode().rsplit(":", 1)[1])
                self.assertIn("Short.", self.chat(port)[1])  # nothing needs root
                self.assertEqual(os.stat(f"/proc/{server.pid}/mem").st_uid, owner)
                _, metrics = self.ask(port, "/metrics")
                self.assertRegex(metrics, r"(?m)^process_open_fds\S* [1-9]")
                server.terminate()
                self.assertEqual(server.wait(20), 0)

    def test_a_closed_terminal_ends_a_server_that_ran_in_it(self):
        pid, terminal = os.forkpty()
        if pid == 0:
            os.execv(BINARY, [BINARY, "serve", self.model, "--port", "0", "--executor", "modelled:" + self.script])
        seen = b""
        while b"listening on" not in seen:
            seen += os.read(terminal, 4096)
        os.close(terminal)
        end = time.time() + 15
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.time() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self.fail("the server outlived its terminal")
            time.sleep(0.05)

    # ---- completion and manuals

    def complete(self, *words, cwd=None):
        """What bash would offer for the last word."""
        listed = " ".join(f"'{word}'" for word in ("pelton", *words))
        # COMP_WORDS[0] is what the script asks for models.
        program = (f"source <('{BINARY}' completion bash); compopt() {{ :; }}\n"
                   f"COMP_WORDS=({listed}); COMP_WORDS[0]='{BINARY}'; COMP_CWORD={len(words)}\n"
                   "_pelton; printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", program], capture_output=True, timeout=60, check=True, cwd=cwd,
                              env={**os.environ, "HF_HOME": str(self.folder / "hub")})
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode().split()

    def test_bash_completes_verbs_flags_choices_and_models(self):
        self.assertEqual(self.complete("ser"), ["serve"])
        self.assertIn("serve", self.complete("bench", ""))
        self.assertIn("--tls-cert", self.complete("serve", "--tls"))
        self.assertIn("--config", self.complete("serve", "m", "--c"))
        self.assertEqual(self.complete("serve", "--log-level", "w"), ["warning"])
        self.assertEqual(self.complete("serve", "--log-level", "=", "w"), ["warning"])
        self.assertEqual(self.complete("completion", "z"), ["zsh"])
        self.assertEqual(self.complete("completion", "fi"), ["fish"])
        self.assertIn("--num-prompts", self.complete("bench", "serve", "--num"))
        snapshot = self.folder / "hub/hub/models--some--model/snapshots/0123456789abcdef0123456789abcdef01234567"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
        here = self.folder / "here"
        shutil.copytree(self.model, here / "models/mine")
        self.assertEqual(self.complete("serve", "some/", cwd=here), ["some/model"])
        self.assertIn("models/mine", self.complete("chat", "models/", cwd=here))

    def test_zsh_accepts_its_completion(self):
        text = subprocess.run([BINARY, "completion", "zsh"], capture_output=True, timeout=60, check=True).stdout
        self.assertTrue(text.startswith(b"#compdef pelton\n"))
        if shutil.which("zsh"):
            done = subprocess.run(["zsh", "-n", "/dev/stdin"], input=text, capture_output=True, timeout=60,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_C10_fish_completes(self):
        text = subprocess.run([BINARY, "completion", "fish"], capture_output=True, timeout=60, check=True).stdout
        for part in (b"-n __pelton_at -a 'serve'", b"-n '__pelton_at bench' -a sweep",
                     b"-n '__pelton_in bench serve' -l num-prompts -x", b"-l log-level -x -a 'debug"):
            self.assertIn(part, text)
        if shutil.which("fish"):
            script = self.folder / "pelton.fish"
            script.write_bytes(text)
            for words, offered in (("pelton ser", "serve"), ("pelton bench sw", "sweep"),
                                   ("pelton serve --log-level w", "warning"), ("pelton bench serve --num-p", "--num-prompts")):
                done = subprocess.run(["fish", "-N", "-c", f"source '{script}'; complete -C '{words}'"],
                                      capture_output=True, timeout=60, check=True, text=True)
                self.assertIn(offered, done.stdout, done.stderr)

    def test_every_verb_has_a_manual_page(self):
        out = self.folder / "man"
        subprocess.run([BINARY, "manual", "--out", out], check=True, timeout=60)
        listed = subprocess.run([BINARY, "--help"], capture_output=True, check=True, timeout=60).stdout.decode()
        verbs = re.findall(r"(?m)^  ((?:[a-z][a-z-]* )+)", listed.split("\nVerbs\n")[1].split("\n\n")[0])
        names = {"pelton.1"} | {"pelton-" + verb.strip().replace(" ", "-") + ".1" for verb in verbs}
        self.assertEqual({page.name for page in out.iterdir()}, names)
        page = (out / "pelton-serve.1").read_text()
        for flag in re.findall(r"(?m)^  (--[a-z0-9-]+)",
                               subprocess.run([BINARY, "serve", "--help"], capture_output=True, check=True,
                                              timeout=60).stdout.decode()):
            if flag != "--help":
                self.assertIn("\\fB" + flag.replace("-", "\\-") + "\\fR", page)
        if shutil.which("groff"):
            for file in out.iterdir():
                done = subprocess.run(["groff", "-ww", "-mandoc", "-Tutf8", "-z", file], capture_output=True,
                                      timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, b""), file)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(warnings="ignore")
