#!/usr/bin/env python3
"""tools/sbom: it finds all that the binary links and was compiled from, writes it down the same way twice, and refuses what may not be shipped.
Also: docs/compliance.md names tests that exist.

usage: sbom_test.py BINARY BUILD_FOLDER
"""
import copy
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = (ROOT / "tools" / "sbom_licences.toml").read_text()
BINARY = None
BUILD = None


loader = importlib.machinery.SourceFileLoader("sbom", str(ROOT / "tools" / "sbom"))
sbom = importlib.util.module_from_spec(importlib.util.spec_from_loader("sbom", loader))
sys.modules["sbom"] = sbom  # dataclasses look for it there
loader.exec_module(sbom)


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        done = subprocess.run([sys.executable, ROOT / "tools" / "sbom", BINARY, "--build", BUILD, "--out", cls.folder], capture_output=True, text=True,
                              check=False, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        assert done.returncode == 0, done.stderr
        # The same once more, in this process.
        cls.packages, cls.libraries, cls.shared = sbom.packages_of(BINARY, BUILD)
        cls.spdx = json.loads((cls.folder / "pelton.spdx.json").read_text())
        cls.cdx = json.loads((cls.folder / "pelton.cdx.json").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_every_library_is_there(self):
        """By another way than the tool's: what the kernel maps when it runs, and the packages' own lists of files."""
        listed = {}
        for file in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
            name = file.name.removesuffix(".list").split(":")[0]
            for line in file.read_text().splitlines():
                if ".so" in line:
                    listed[line] = listed["/usr" + line] = name
        with subprocess.Popen([BINARY, "serve", ROOT / "models" / "pelton-box", "--port", "0", "--allow-core-dumps"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            process.stdout.readline()
            # What it may have opened by itself (a GPU's driver) is not of the binary's making.
            mapped = set(re.findall(r" (/\S+\.so[.0-9]*)\n", pathlib.Path(f"/proc/{process.pid}/maps").read_text()))
            process.kill()
        self.assertGreater(len(mapped), 20)
        names = {one["name"] for one in self.spdx["packages"]}
        for path in mapped:
            if pathlib.Path(path).parent == pathlib.Path(BINARY).resolve().parent:
                continue  # our own, beside the binary
            self.assertIn(listed[path], names, path)

    def test_what_is_compiled_in_is_there_with_its_notice(self):
        kinds = {one["relatedSpdxElement"]: one["relationshipType"] for one in self.spdx["relationships"]}
        notices = (self.folder / "NOTICES").read_text()
        boost = [name for name in kinds if re.fullmatch(r"SPDXRef-libboost[0-9.]+-dev", name)]
        self.assertEqual([kinds[name] for name in boost], ["STATIC_LINK"])
        for name in ("SPDXRef-libcli11-dev", "SPDXRef-libtomlplusplus-dev"):
            self.assertEqual(kinds[name], "STATIC_LINK")
        self.assertEqual(kinds["SPDXRef-libcurl4"], "DYNAMIC_LINK")
        self.assertEqual(kinds["SPDXRef-zlib1g"], "DYNAMIC_LINK")
        self.assertEqual(kinds["SPDXRef-libssh2-1"], "DEPENDS_ON")
        for words in ("Boost Software License", "Henry Schreiner", "Mark Gillard", "unicode.org/license"):
            self.assertIn(words, notices)

    def test_the_documents_are_whole(self):
        self.assertEqual(self.spdx["spdxVersion"], "SPDX-2.3")
        for key in ("dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"):
            self.assertIn(key, self.spdx)
        ids = [one["SPDXID"] for one in self.spdx["packages"]]
        self.assertEqual(len(ids), len(set(ids)))
        for one in ids:
            self.assertRegex(one, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for link in self.spdx["relationships"]:
            self.assertLessEqual({link["spdxElementId"], link["relatedSpdxElement"]}, {*ids, "SPDXRef-DOCUMENT"})
        self.assertEqual(set(ids), {link["relatedSpdxElement"] for link in self.spdx["relationships"]}, "each is there for some reason")
        self.assertEqual((self.cdx["bomFormat"], self.cdx["specVersion"]), ("CycloneDX", "1.5"))
        references = {one["bom-ref"] for one in self.cdx["components"]} | {"pelton"}
        for one in self.cdx["dependencies"]:
            self.assertLessEqual({one["ref"], *one["dependsOn"]}, references)
        self.assertEqual({one["name"] for one in self.cdx["components"]} | {"pelton"}, {one["name"] for one in self.spdx["packages"]})
        self.assertEqual(self.spdx["creationInfo"]["created"], "2023-11-14T22:13:20Z")

    def test_twice_the_same(self):
        table = tomllib.loads(TABLE)
        packages = copy.deepcopy(self.packages)
        self.assertEqual(sbom.judge(packages, table), [])
        product = sbom.Product(self.spdx["packages"][0]["versionInfo"], self.spdx["packages"][0]["checksums"][0]["checksumValue"], "2023-11-14T22:13:20Z")
        depends = sbom.dependencies(BINARY, self.libraries, self.shared)
        for file, text in {"pelton.spdx.json": json.dumps(sbom.spdx(product, packages, table["data"], depends["pelton"]), indent=1) + "\n",
                           "pelton.cdx.json": json.dumps(sbom.cyclonedx(product, packages, table["data"], depends), indent=1) + "\n",
                           "licences.txt": sbom.report(packages, table["data"]), "NOTICES": sbom.notices(packages, table["data"])}.items():
            self.assertEqual((self.folder / file).read_text(), text, file)

    def refusal(self, old, new):
        self.assertIn(old, TABLE)
        return "\n".join(sbom.judge(copy.deepcopy(self.packages), tomllib.loads(TABLE.replace(old, new))))

    def test_what_may_not_be_shipped_is_refused(self):
        pcre2 = '"libpcre2-*" = {licence = "BSD-3-Clause"'
        self.assertIn("libpcre2-8-0: GPL-2.0-or-later has no exception", self.refusal(pcre2, '"libpcre2-*" = {licence = "GPL-2.0-or-later"'))
        self.assertIn("libpcre2-8-0: AGPL-3.0-only asks for the source", self.refusal(pcre2, '"libpcre2-*" = {licence = "AGPL-3.0-only"'))
        self.assertIn("no exception", self.refusal(pcre2, '"libpcre2-*" = {licence = "MIT AND GPL-3.0-only"'))
        self.assertIn("no exception", self.refusal(pcre2, '"libpcre2-*" = {licence = "GPL-3.0-only WITH Bison-exception-2.2"'))
        self.assertIn("does not read", self.refusal(pcre2, '"libpcre2-*" = {licence = "MIT AND BSD-3-Clause OR ISC"'))
        self.assertIn("libcli11-dev: LGPL-3.0-only is compiled in", self.refusal('"libcli11-dev" = {licence = "BSD-3-Clause"', '"libcli11-dev" = {licence = "LGPL-3.0-only"'))
        self.assertEqual(self.refusal(pcre2, '"libpcre2-*" = {licence = "GPL-2.0-only OR MIT"'), "")

    def test_what_nobody_has_read_is_refused(self):
        self.assertIn("libpcre2-8-0: nobody has read its licence", self.refusal('"libpcre2-*"', '"libpcre9-*"'))
        self.assertIn("does not say 'Some other words' (any more)", self.refusal('says = "BSD-3-clause-Cambridge"', 'says = "Some other words"'))

    def test_a_refusal_ends_the_tool(self):
        (self.folder / "empty.toml").write_text("[packages]\n")
        done = subprocess.run([sys.executable, ROOT / "tools" / "sbom", BINARY, "--licences", self.folder / "empty.toml"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nobody has read its licence", done.stderr)


class Compliance(unittest.TestCase):
    def test_the_page_names_tests_that_exist(self):
        page = (ROOT / "docs" / "compliance.md").read_text()
        named = set(re.findall(r"`tests\.(\w+)`", page))
        listed = set(re.findall(r"add_test\(NAME tests\.(\w+)", (ROOT / "tests" / "CMakeLists.txt").read_text()))
        self.assertEqual(named - listed, set())
        rooms = re.findall(r"`([a-z_]+)\.([A-Z]\w+)\.(\w+)\*?`", page)
        for room, suite, name in rooms:
            text = "\n".join(file.read_text() for file in (ROOT / "src" / room).glob("*_test.cc"))
            self.assertRegex(text, rf"TEST(?:_F|_P)?\(\s*{suite},\s*{name}", f"{room}.{suite}.{name}")
        self.assertGreater(len(named) + len(rooms), 20)

    def test_every_row_has_a_feature_and_a_test(self):
        page = (ROOT / "docs" / "compliance.md").read_text()
        rows = [line for line in page.splitlines() if re.match(r"\| (GDPR|HIPAA|SOC 2) ", line)]
        self.assertGreater(len(rows), 15)
        for row in rows:
            self.assertRegex(row.split("|")[3], r"`[a-z_]+\.|operator", row)


if __name__ == "__main__":
    BINARY, BUILD = (os.path.abspath(word) for word in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
