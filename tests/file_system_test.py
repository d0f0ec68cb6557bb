#!/usr/bin/env python3
"""A start without a cache leaves no file behind: anywhere. Each command runs in a mount namespace whose file systems are all
overlays, so that whatever it creates, changes or removes lies in their upper layers afterwards. What only this machine's
kernel has (/proc, /sys, /dev but for /dev/shm) is left out. Where namespaces or overlays are not allowed, it is skipped.

usage: file_system_test.py BINARY
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOX = ROOT / "models" / "pelton-box"
BINARY = None

# File systems that hold files which would still be there tomorrow.
KEPT = {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "virtiofs", "9p", "fuse.virtiofs"}
LEFT_OUT = ("/proc", "/sys", "/dev")

# Starts a server, asks it, ends it. Its standard input says how.
ASK = r"""
import json, subprocess, sys, urllib.request
words = json.load(sys.stdin)
process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
port = int(process.stdout.readline().rsplit(":", 1)[1])
body = json.dumps({"prompt": "Once", "max_tokens": 8}).encode()
request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
assert len(urllib.request.urlopen(request, timeout=120).read()) > 50
process.terminate()
assert process.wait(60) == 0
"""


def mount_points():
    points = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        point = fields[4]
        if kind in KEPT and not point.startswith(LEFT_OUT) and " " not in point and os.path.isdir(point):
            points.append(point)
    return sorted(set(points), key=len)


# Prints, behind a line "--", what the command has left in the upper layers: all but folders that were there before, in
# which something was and is no more.
def script(command, folder):
    points = mount_points()
    lines = ["set -e", "mount --make-rprivate /", f"T={shlex.quote(folder)}", "mount -t tmpfs none $T", "mkdir $T/root $T/shm"]
    for number, point in enumerate(points):
        lines += [f"mkdir $T/u{number} $T/w{number}",
                  f"mount -t overlay overlay -o lowerdir={point},upperdir=$T/u{number},workdir=$T/w{number} "
                  f"$T/root{point} || test {point} != /"]
    lines += ["mount -t proc proc $T/root/proc", "mount --rbind /sys $T/root/sys", "mount --rbind /dev $T/root/dev",
              "mount --make-rprivate $T/root/dev", "mount --bind $T/shm $T/root/dev/shm",
              f"cd / && chroot $T/root sh -c {shlex.quote('cd ' + shlex.quote(os.getcwd()) + ' && ' + command)}", "echo --",
              'left() { cd $1; find . -mindepth 1 | while read -r p; do [ -d "$p" ] && [ -d "$2/$p" ] || echo "$2/${p#./}"; done; }']
    lines += [f"left $T/u{number} {point.rstrip('/')}" for number, point in enumerate(points)]
    return "\n".join([*lines, "left $T/shm /dev/shm"])


def run(command, given=""):
    """The paths that it has made, changed or removed; None: this machine does not allow to look."""
    with tempfile.TemporaryDirectory() as folder:
        def in_namespace(words, stdin=""):
            return subprocess.run(["unshare", "--mount", "sh", "-c", script(words, folder)], input=stdin, capture_output=True,
                                  text=True, timeout=250, check=False)
        alone = in_namespace("true")
        if alone.returncode != 0 or "--\n" not in alone.stdout:
            return None
        done = in_namespace(command, given)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("--\n", 1)[1].split()


class FileSystem(unittest.TestCase):
    def left_by(self, command, given=""):
        try:
            left = run(command, given)
        except FileNotFoundError:
            left = None
        if left is None:
            self.skipTest("mount namespaces with overlays are not allowed here")
        return left

    def test_it_sees_what_is_left(self):
        for path in ("/var/tmp/pelton-left", "/dev/shm/pelton-left"):
            self.assertEqual([path], self.left_by(f"echo x > {path}"))
        self.assertEqual(["/etc/passwd"], self.left_by("rm /etc/passwd"))
        self.assertEqual([], self.left_by("echo x > /tmp/pelton-left && rm /tmp/pelton-left"))

    def test_a_start_without_a_cache_leaves_no_file_behind(self):
        for weights in ("shipped", "int8"):
            words = [BINARY, "serve", str(BOX), "--port", "0", "--weights", weights]
            with self.subTest(weights):
                self.assertEqual([], self.left_by(f"python3 -B -c {shlex.quote(ASK)}", json.dumps(words)))

    def test_nor_do_other_verbs(self):
        for words in (["generate", BOX, "--prompt", "Once", "--max-tokens", "4"], ["plan", BOX, "--memory"],
                      ["inspect", BOX], ["verify", BOX]):
            with self.subTest(words[0]):
                self.assertEqual([], self.left_by(f"{shlex.join([BINARY, *map(str, words)])} > /dev/null"))


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
