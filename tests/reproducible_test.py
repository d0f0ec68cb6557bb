#!/usr/bin/env python3
"""The same sources, packed twice: here, and from a copy in another folder, later, with another umask, home and time zone; the same
.deb, the same image, and so the same binary. And some files compiled in both without any cache: the same code. Only in ./test --full.

usage: reproducible_test.py BINARY BUILD_FOLDER
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = None
EPOCH = "1700000000"
# A check that names its file, a table, a page of the console's, SQLite's statements.
SOURCES = ("src/base/json.cc", "src/net/url.cc", "src/store/sqlite_file.cc", "src/store/tenant_keys.cc")


def run(*words, cwd=ROOT, **options):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, check=False, **options)
    assert done.returncode == 0, f"{words}: {done.stdout.decode()[-2000:]}{done.stderr.decode()[-2000:]}"
    return done.stdout.decode()


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(folder):
    return {str(path.relative_to(folder)): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


class Reproducible(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton-reproducible-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.copy = cls.folder / "another folder's name".replace(" ", "-").replace("'", "")
        names = [name for name in run("git", "ls-files", "-co", "--exclude-standard").splitlines() if (ROOT / name).is_file()]
        for name in names:
            (cls.copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, cls.copy / name)

    def environment(self, where):
        if where == ROOT:
            return {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        cache = os.environ.get("CCACHE_DIR") or run("ccache", "--get-config", "cache_dir").strip()
        return {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "HOME": str(home), "USER": "somebody", "LOGNAME": "somebody", "TZ": "Asia/Kathmandu",
                "CCACHE_DIR": cache, "PELTON_TESTS": "OFF"}

    def compiled(self, where, source):
        """Its code and data as the compiler makes them there, asked anew."""
        target = next(line.split(":")[0] for line in run("ninja", "-C", ROOT / "build/release", "-t", "targets", "all").splitlines()
                      if line.split(":")[0].endswith(f"/pelton_{source.split('/')[1]}.dir/{pathlib.Path(source).name}.o"))
        command = run("ninja", "-C", ROOT / "build/release", "-t", "commands", target).splitlines()[-1]
        out = self.folder / f"{where.name}-{pathlib.Path(source).name}.o"
        command = command.replace(str(ROOT), str(where)).replace(f"-o {target}", f"-o {out}").replace(f"-MF {target}.d", f"-MF {out}.d")
        (where / "build/release").mkdir(parents=True, exist_ok=True)
        run("sh", "-c", command, cwd=where / "build/release",
            env={**self.environment(where), "CCACHE_DIR": str(self.folder / "cache"), "CCACHE_RECACHE": "1"})
        run("strip", "--strip-unneeded", "-R", ".comment", out)
        return sha256(out)

    def test_a_file_compiles_to_the_same_in_another_folder(self):
        for source in SOURCES:
            self.assertEqual(self.compiled(ROOT, source), self.compiled(self.copy, source), source)

    def test_package_image_and_binary(self):
        made = {}
        for where, umask in ((ROOT, 0o022), (self.copy, 0o077)):
            out = self.folder / f"out-{where.name}"
            run(where / "tools/package", out, cwd=where, env=self.environment(where), umask=umask)
            (package,) = out.glob("*.deb")
            unpacked = out / "unpacked"
            run("dpkg-deb", "--raw-extract", package, unpacked)
            made[where] = {"files": files_of(unpacked), "binary": sha256(unpacked / "usr/bin/pelton"), "package": sha256(package)}
            if shutil.which("umoci") and os.geteuid() == 0:
                run(where / "tools/image", out / "image", cwd=where, env=self.environment(where), umask=umask)
                made[where]["image"] = files_of(out / "image")
        here, there = made.values()
        for name, digest in here["files"].items():
            self.assertEqual(digest, there["files"].get(name), name)
        self.assertEqual(here, there)
        print(f"pelton {here['binary'][:16]}, .deb {here['package'][:16]}")


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv[1]).resolve()
    build = pathlib.Path(sys.argv[2]).resolve()
    missing = [name for name in ("ccache", "ninja", "cpack", "dpkg-deb", "git") if shutil.which(name) is None]
    if os.environ.get("PELTON_FULL") != "1" or build != ROOT / "build/release" or missing:
        print(f"reproducible: only in ./test --full, in build/release{', with ' + ' '.join(missing) if missing else ''}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
