#!/usr/bin/env python3
"""Every report that is a page, on a phone and on a wide window, in a headless Chromium (PELTON_FULL=1): nothing is cut or asked of the
network, all is drawn, letters can be read.

usage: report_pages_test.py BINARY
"""
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from chromium import Chromium
from tiers import full

BINARY = None
PHONE, WIDE = (380, 800), (1280, 900)
# What is wider than the window scrolls in its own box; the page does not.
LOOK = """(() => {
  const width = document.documentElement.clientWidth;
  const in_box = e => e.closest('.scroll, table, svg') !== null;
  const letters = t => parseFloat(getComputedStyle(t).fontSize) *
    t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width;
  document.querySelectorAll('details').forEach(one => one.open = true);
  return {scrolls: document.documentElement.scrollWidth - width,
          cut: [...document.querySelectorAll('main *')].filter(e => !in_box(e) && e.getBoundingClientRect().right > width + 0.5)
            .map(e => e.tagName + ' ' + e.textContent.slice(0, 60)),
          figures: document.querySelectorAll('figure').length,
          empty: [...document.querySelectorAll('svg text')].filter(t => t.textContent == 'nothing to show').length,
          smallest: Math.min(99, ...[...document.querySelectorAll('svg text')].map(letters)),
          tables: document.querySelectorAll('table').length};
})()"""
LONG = "x" * 400


def pelton(*words):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, timeout=200, check=False, text=True)
    assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


class Answers(http.server.BaseHTTPRequestHandler):
    """Long words without a blank, wrong answers, and a usage that cannot be."""

    def do_GET(self):
        self.say({"data": [{"id": "a/model-with-a-long-name-" + "y" * 80}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.say({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": LONG}}],
                  "usage": {"prompt_tokens": 0, "completion_tokens": 3}})

    def say(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@full
class ReportPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert shutil.which("chromium"), "tools/install_packages --full"
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pelton_pages_"))
        cls.shots = os.environ.get("PELTON_PICTURES")  # a folder: pictures are kept there
        cls.browser = Chromium(cls.folder / "profile")
        cls.browser.open_page()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def look_at(self, name, *words, figures=0):
        page = self.folder / f"{name}.html"
        pelton(*words, "--html", page)
        for width, height in (PHONE, WIDE):
            with self.subTest(page=name, width=width):
                self.browser.visit(page.as_uri(), width, height)
                seen = self.browser.evaluate(LOOK)
                self.assertEqual(seen["scrolls"], 0, f"{name} scrolls sideways at {width}: {seen['cut'][:5]}")
                self.assertEqual(seen["cut"], [], f"{name} at {width}")
                self.assertEqual(seen["empty"], 0, (name, seen))
                self.assertGreaterEqual(seen["figures"], figures, name)
                self.assertGreaterEqual(seen["smallest"], 10, f"{name}: letters too small at {width}")
                asked = [event["params"]["request"]["url"] for event in self.browser.events
                         if event.get("method") == "Network.requestWillBeSent"]
                self.assertEqual([one for one in asked if one != page.as_uri() and not one.startswith("data:")], [])
                said = [event for event in self.browser.events if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]
                self.assertEqual(said, [])
                if self.shots:
                    self.picture(name, width)

    def picture(self, name, width):
        import base64
        height = self.browser.evaluate("document.documentElement.scrollHeight")
        shot = self.browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                                 clip={"x": 0, "y": 0, "width": width, "height": min(height, 4000), "scale": 1})
        pathlib.Path(self.shots, f"{name}-{width}.png").write_bytes(base64.b64decode(shot["data"]))

    def test_simulate(self):
        load = ["simulate", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", 8, "--request-rate", 3, "--num-prompts", 300, "--input-len", 50,
                "--output-len", 60]
        scaled = [*load, "--autoscale", "concurrency", "--max-replicas", 6, "--start-seconds", 10]
        self.look_at("simulate", *scaled, "--record-facts", self.folder / "facts.jsonl", "--price", 2, figures=6)
        self.look_at("whatif", "whatif", "--facts", self.folder / "facts.jsonl", "--set", "scale_down_delay=120", figures=4)
        self.look_at("seeds", *scaled, "--seeds", 3, figures=4)
        self.look_at("fluid", *scaled, "--fidelity", "fluid", "--check-fluid", figures=4)
        self.look_at("sweep", "simulate", "--scenario", "start-times", "--num-prompts", 100, figures=5)
        self.look_at("year", "simulate", "--scenario", "two-zones-year", "--days", 2, "--seeds", 2, figures=4)
        self.look_at("fronts", "simulate", "--scenario", "split-against-mixed-8k", "--num-prompts", 20, figures=1)

    def test_tune_and_plan(self):
        self.look_at("tune", "tune", "gpt-oss-20b", "--gpu", "l4", "--vary", "max-num-seqs=1,4,16", "--vary", "kv-cache-dtype=auto,int8",
                     "--request-rate", 2, "--num-prompts", 60, "--input-len", 100, "--output-len", 40, "--objectives", "ttft:5000 tpot:90", figures=2)
        self.look_at("plan", "plan", "gpt-oss-120b", "--instance", "p4de.24xlarge", "--slo", "itl=30ms", "--rps", 50)

    def test_compare(self):
        files = []
        for seqs in (4, 16):
            files.append(self.folder / f"{seqs}.json")
            pelton("simulate", "gpt-oss-20b", "--gpu", "l4", "--max-num-seqs", seqs, "--request-rate", 2, "--num-prompts", 60, "--json", files[-1])
        self.look_at("compare", "bench", "compare", *files)

    def test_eval(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        words = ["eval", "--base-url", f"http://127.0.0.1:{server.server_address[1]}", "--tasks", "arithmetic,json,tools,retrieval,korean,french",
                 "--num-tasks", 3]
        before = self.folder / ("before-" + "z" * 60 + ".json")
        pelton(*words, "--out", before)
        self.look_at("eval", *words, "--against", before)
        text = re.sub(r"<[^>]*>", " ", (self.folder / "eval.html").read_text())
        self.assertIn("usage cannot be true in 18 of 18 answers", text)


if __name__ == "__main__":
    BINARY = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
