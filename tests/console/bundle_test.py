#!/usr/bin/env python3
"""The console's bundle: the same bytes each time and from another folder, small enough, and as large as docs/console.md says.

usage: bundle_test.py
"""
import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES_MAX = 250_000


def bundle(pages, esbuild):
    """The C++ file and the files served, by name."""
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "bundle.cc"
        subprocess.run(["cmake", f"-DESBUILD={esbuild}", f"-DPAGES={pages}", f"-DWORK={work}", f"-DOUT={out}", "-P",
                        str(ROOT / "cmake/console_bundle.cmake")], check=True, capture_output=True)
        names = [name for name in ("app.js", "styles.css") if (pathlib.Path(work) / name).exists()]
        return out.read_text(), {name: (pathlib.Path(work) / name).read_bytes() for name in names}


class Bundle(unittest.TestCase):
    def setUp(self):
        self.esbuild = shutil.which("esbuild")
        self.assertIsNotNone(self.esbuild, "tools/install_packages")

    def test_is_the_same_from_another_folder(self):
        here, _ = bundle(ROOT / "console", self.esbuild)
        with tempfile.TemporaryDirectory() as other:
            shutil.copytree(ROOT / "console", other + "/elsewhere")
            there, _ = bundle(other + "/elsewhere", self.esbuild)
        self.assertEqual(here, there)
        self.assertNotIn(str(ROOT), here)

    def test_is_as_large_as_the_page_says(self):
        _, files = bundle(ROOT / "console", self.esbuild)
        files["index.html"] = (ROOT / "console/index.html").read_bytes()
        files["icon.svg"] = (ROOT / "console/icon.svg").read_bytes()
        size = sum(len(gzip.compress(data, 9, mtime=0)) for data in files.values())
        self.assertLess(size, BYTES_MAX)
        for page, words in (("console.md", r"The bundle is (\d+) KB gzip"), ("performance.md", r"bundle, gzip \| (\d+) KB")):
            said = re.search(words, (ROOT / "docs" / page).read_text())
            self.assertIsNotNone(said, page)
            self.assertLessEqual(abs(int(said[1]) - size / 1000), 1, f"it is {size} bytes: {page}")

    def test_without_esbuild_there_is_none(self):
        text, files = bundle(ROOT / "console", "")
        self.assertEqual(files, {})
        self.assertIn("return {};", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
