#!/usr/bin/env python3
"""The image that tools/image makes: the same bytes twice, small, with what deploy/Containerfile says; and run by runc, with a read-only root, as
its own user and without capabilities, it serves, says why it does not, and drains; as root, without a volume, with a full one, in 64 MiB, too.

usage: image_test.py BINARY BUILD_FOLDER     exit code 77 (skipped) unless PELTON_FULL=1, root, umoci, skopeo and runc are there
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

import gateway_fixture
from gateway_fixture import ask
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES_MAX = 80 << 20
BINARY = None
BUILD = None


def make(out, **environment):
    done = subprocess.run([ROOT / "tools" / "image", "--binary", BINARY, "--build", BUILD, out], capture_output=True, text=True, check=False,
                          env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **environment})
    assert done.returncode == 0, done.stderr
    return out


def blob(image, digest):
    return json.loads((image / "blobs" / digest.replace(":", "/")).read_text())


def manifest_of(image):
    index = json.loads((image / "index.json").read_text())
    return next(one["digest"] for one in index["manifests"] if one["annotations"]["org.opencontainers.image.ref.name"] == "latest")


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.image = make(cls.folder / "image")
        cls.manifest = blob(cls.image, manifest_of(cls.image))
        cls.config = blob(cls.image, cls.manifest["config"]["digest"])["config"]
        cls.bundle = cls.folder / "bundle"
        subprocess.run(["umoci", "unpack", "--image", f"{cls.image}:latest", cls.bundle], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_twice_the_same_and_small(self):
        again = make(self.folder / "elsewhere" / "again", TMPDIR=str(self.folder), TZ="Asia/Tokyo")
        self.assertEqual(manifest_of(again), manifest_of(self.image))
        size = sum(layer["size"] for layer in self.manifest["layers"])
        print(size, "bytes")
        self.assertLess(size, BYTES_MAX)

    def test_the_containerfile_says_the_same(self):
        lines = (ROOT / "deploy" / "Containerfile").read_text()
        said = dict(re.findall(r"^(USER|STOPSIGNAL|VOLUME|WORKDIR|EXPOSE|ENTRYPOINT|CMD|ENV|LABEL) (.+)$", lines, re.M))
        self.assertEqual(said["USER"], self.config["User"])
        self.assertEqual(said["STOPSIGNAL"], self.config["StopSignal"])
        self.assertEqual({said["VOLUME"]}, set(self.config["Volumes"]))
        self.assertEqual({said["EXPOSE"]}, set(self.config["ExposedPorts"]))
        self.assertEqual(said["WORKDIR"], self.config["WorkingDir"])
        self.assertEqual(json.loads(said["ENTRYPOINT"]), self.config["Entrypoint"])
        self.assertEqual(json.loads(said["CMD"]), self.config["Cmd"])
        self.assertEqual(set(shlex.split(said["ENV"])), set(self.config["Env"]))
        self.assertEqual(dict(word.split("=", 1) for word in shlex.split(said["LABEL"])), self.config["Labels"])

    def test_what_is_in_it(self):
        root = self.bundle / "rootfs"
        for file in ("pelton.spdx.json", "pelton.cdx.json", "NOTICES", "copyright"):
            self.assertTrue((root / "usr/share/doc/pelton" / file).is_file(), file)
        programs = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and os.access(path, os.X_OK) and ".so" not in path.name]
        self.assertEqual([path.relative_to(root).as_posix() for path in programs], ["usr/bin/pelton"], "no shell, no other program")
        writable = [path for path in root.rglob("*") if not path.is_symlink() and path.stat().st_uid == 65532]
        self.assertEqual({path.relative_to(root).as_posix() for path in writable}, {"var/cache/pelton", "var/lib/pelton"})

    def test_docker_takes_it(self):
        archive = self.folder / "pelton.tar"
        subprocess.run(["skopeo", "--insecure-policy", "copy", f"oci:{self.image}:latest", f"docker-archive:{archive}:pelton:test"], check=True, capture_output=True)
        with tarfile.open(archive) as file:
            (one,) = json.load(file.extractfile("manifest.json"))
        self.assertEqual(one["RepoTags"], ["docker.io/library/pelton:test"])

    def run_it(self, name, *args, user=65532, cache=("uid=65532", "gid=65532", "mode=700"), mounts=(), cgroup=None):
        """In a container of runc's, with the network of this machine. `cache`: options of the volume, None: there is none; `cgroup`: a group of this
        machine's to be in."""
        spec = json.loads((self.bundle / "config.json").read_text())
        spec["process"]["args"] = ["pelton", *args]
        spec["process"]["terminal"] = False
        spec["process"]["capabilities"] = {}
        spec["process"]["noNewPrivileges"] = True
        self.assertEqual((spec["process"]["user"]["uid"], spec["process"]["user"]["gid"]), (65532, 65532))
        spec["process"]["user"] = {"uid": user, "gid": user}
        spec["root"]["readonly"] = True
        spec["linux"]["namespaces"] = [one for one in spec["linux"]["namespaces"] if one["type"] in ("pid", "mount", "ipc", "uts")]
        spec["linux"].pop("resources", None)
        spec["mounts"] = [one for one in spec["mounts"] if one["type"] in ("proc", "tmpfs", "mqueue")]
        if cache is not None:
            spec["mounts"].append({"destination": "/var/cache/pelton", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", *cache]})
        spec["mounts"] += mounts
        bundle = self.folder / name
        bundle.mkdir()
        (bundle / "rootfs").symlink_to(self.bundle / "rootfs")
        spec["root"]["path"] = str(self.bundle / "rootfs")
        (bundle / "config.json").write_text(json.dumps(spec))
        log = open(self.folder / f"{name}.log", "w+", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(["runc", "--root", self.folder / "runc", "run", "--bundle", bundle, f"pelton-test-{name}-{os.getpid()}"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   preexec_fn=cgroup and (lambda: (cgroup / "cgroup.procs").write_text(str(os.getpid()))))
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process, log

    def text(self, log):
        log.seek(0)
        return log.read()

    def serve(self, name, *more, **how):
        """One that serves: its port and log, and what ends it in order."""
        port = free_port()
        process, log = self.run_it(name, *self.config["Cmd"], "--open", "--port", str(port), *more, **how)
        end = time.monotonic() + 120
        while "listening on" not in self.text(log):
            self.assertLess(time.monotonic(), end, self.text(log))
            self.assertIsNone(process.poll(), self.text(log))
            time.sleep(0.1)
        self.assertEqual(ask(port, "GET", "/health")[0], 200)

        def stop():
            subprocess.run(["runc", "--root", self.folder / "runc", "kill", f"pelton-test-{name}-{os.getpid()}", "TERM"], check=True)
            self.assertEqual(process.wait(60), 0, self.text(log))
        return port, log, stop

    def chat(self, port, tokens=8):
        status, text = ask(port, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "What is a Pelton wheel?"}], "max_tokens": tokens})
        self.assertEqual(status, 200, text)

    def test_it_serves_and_drains(self):
        port, log, stop = self.serve("serves")
        self.chat(port)
        self.assertNotIn("root", self.text(log))
        stop()

    def test_as_root_it_says_so(self):
        """Without capabilities, as everywhere: a root that owns nothing of the volume."""
        port, log, stop = self.serve("root", user=0)
        self.chat(port)
        self.assertIn("runs as root, which it needs for nothing", self.text(log))
        stop()

    def test_without_a_volume_it_serves_and_names_what_it_cannot_keep(self):
        port, _, stop = self.serve("bare", cache=None)
        self.chat(port)
        stop()
        process, log = self.run_it("bare-store", *self.config["Cmd"], "--open", "--response-store", "sqlite:/var/cache/pelton/responses.db", cache=None)
        self.assertEqual(process.wait(60), 3, self.text(log))  # its configuration names a place that cannot be used
        self.assertIn("/var/cache/pelton/responses.db", self.text(log))
        self.assertRegex(self.text(log), "[Rr]ead-?only|unable to open|readonly")

    def test_with_a_full_volume_it_serves_and_names_what_it_cannot_keep(self):
        full = ("uid=65532", "gid=65532", "mode=700", "size=4k")
        port, _, stop = self.serve("full", cache=full)
        self.chat(port)
        stop()
        for name, flag, value in (("full-store", "--response-store", "sqlite:/var/cache/pelton/responses.db"), ("full-disk", "--kv-disk", "/var/cache/pelton")):
            more = ("--kv-disk-size", "64MiB", "--swap-space", "16MiB") if flag == "--kv-disk" else ()
            process, log = self.run_it(name, *self.config["Cmd"], "--open", flag, value, *more, cache=full)
            self.assertEqual(process.wait(60), 3, self.text(log))
            self.assertRegex(self.text(log), "database or disk is full|4096 are free")
            self.assertIn("/var/cache/pelton", self.text(log))

    def test_in_64_mib_it_serves_or_says_what_does_not_fit(self):
        cgroup = pathlib.Path(f"/sys/fs/cgroup/memory/pelton-test-{os.getpid()}")
        try:
            cgroup.mkdir()
        except OSError as error:
            self.skipTest(f"no control group can be made: {error}")
        self.addCleanup(cgroup.rmdir)
        (cgroup / "memory.limit_in_bytes").write_text(str(64 << 20))
        # As Docker shows it: read-only.
        shown = {"destination": "/sys/fs/cgroup", "type": "bind", "source": "/sys/fs/cgroup", "options": ["rbind", "ro"]}
        how = {"mounts": [shown], "cgroup": cgroup}
        port, log, stop = self.serve("small", **how)
        self.assertRegex(self.text(log), r"memory: [\d.]+ MiB of 64\.0 MiB")
        asking = [threading.Thread(target=self.chat, args=(port, 200)) for _ in range(16)]
        for one in asking:
            one.start()
        for one in asking:
            one.join(120)
        self.chat(port)
        stop()
        process, log = self.run_it("small-kv", *self.config["Cmd"], "--open", "--kv-cache-memory", "256MiB", **how)
        self.assertEqual(process.wait(60), 5, self.text(log))  # does not fit
        self.assertRegex(self.text(log), r"256(\.0)? MiB")

    def test_as_it_comes_it_asks_who_may_ask(self):
        process, log = self.run_it("asks", *self.config["Cmd"])
        self.assertEqual(process.wait(60), 3, self.text(log))  # bad configuration
        self.assertIn("--open", self.text(log))

    @unittest.skipUnless(shutil.which("podman"), "podman is not installed")
    def test_podman_runs_it_and_50_streams_are_not_cut(self):
        """Loaded as Docker's archive; a read-only root, no capabilities, its own user; `podman stop` waits for the answers."""
        archive = self.folder / "podman.tar"
        subprocess.run(["skopeo", "--insecure-policy", "copy", f"oci:{self.image}:latest", f"docker-archive:{archive}:pelton:test"], check=True, capture_output=True)

        def podman(*words):
            done = subprocess.run(["podman", "--storage-driver", "vfs", "--root", self.folder / "podman", "--runroot", self.folder / "podman-run", "--runtime", "runc",
                                   "--cgroup-manager", "cgroupfs", *words], capture_output=True, text=True, check=False, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.strip()
        podman("load", "-i", archive)
        script = self.folder / "script.json"
        script.write_text(json.dumps({**gateway_fixture.SCRIPT, "step_ms": 10}))
        cache = self.folder / "cache"
        cache.mkdir()
        os.chown(cache, 65532, 65532)
        port = free_port()
        name = f"pelton-test-{os.getpid()}"
        podman("run", "-d", "--name", name, "--network=host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--read-only", "--cap-drop", "all",
               "-v", f"{cache}:/var/cache/pelton", "-v", f"{script}:/script.json:ro", "pelton:test", *self.config["Cmd"], "--open", "--host", "127.0.0.1",
               "--port", str(port), "--executor", "modelled:/script.json")
        self.addCleanup(podman, "rm", "-f", name)
        end = time.monotonic() + 60
        while True:
            try:
                if ask(port, "GET", "/health")[0] == 200:
                    break
            except OSError:
                pass
            self.assertLess(time.monotonic(), end, podman("logs", name))
            time.sleep(0.1)
        self.assertEqual(podman("inspect", name, "--format", "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.EffectiveCaps}}"), "65532:65532 true []")
        failed = []

        def stream(number):
            try:
                gateway_fixture.check_stream(port, number, 200, number)
            except BaseException as error:  # the test says which
                failed.append((number, repr(error)))
        streams = [threading.Thread(target=stream, args=(number,)) for number in range(1, 51)]
        for one in streams:
            one.start()
        while "num_requests_running{model_name=\"pelton-box\",engine=\"0\"} 50" not in str(ask(port, "GET", "/metrics")[1]).replace("\\", ""):
            self.assertLess(time.monotonic(), end, failed)
        podman("stop", "-t", "30", name)
        for one in streams:
            one.join(30)
        self.assertEqual(failed, [])
        self.assertEqual(podman("inspect", name, "--format", "{{.State.ExitCode}}"), "0")


if __name__ == "__main__":
    if os.environ.get("PELTON_FULL") != "1" or os.geteuid() != 0 or not all(map(shutil.which, ("umoci", "skopeo", "runc"))):
        print("image: only in ./test --full, as root, with umoci, skopeo and runc", file=sys.stderr)
        sys.exit(77)
    BINARY, BUILD = (os.path.abspath(word) for word in sys.argv[1:3])
    gateway_fixture.BINARY = BINARY
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
