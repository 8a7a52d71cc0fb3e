"""`plan --html` in a real browser: it draws, nothing is fetched, nothing goes wrong, and the filter filters.

    BERTH_BROWSER   a Chromium (default: chromium, chromium-browser or google-chrome on the path)

Without one the tests are skipped by name: it is large, and only these tests want it.
"""
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib
from pathlib import Path

from berth_command import STORIES, CommandTest

BROWSER = os.environ.get("BERTH_BROWSER") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SMALL = ("--emulate", "1x1MiB,1x1600KiB", "-c", "128", "--no-offload")


def pixels(path):
    """Rows of a PNG as Chromium writes it: 8 bit RGB or RGBA, not interlaced."""
    data = Path(path).read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6), (depth, kind)
    step = 3 if kind == 2 else 4
    packed, at = b"", 8
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at:at + 8])
        if name == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    raw = zlib.decompress(packed)
    rows, before, size = [], bytearray(width * step), width * step
    for y in range(height):
        filter_, line = raw[y * (size + 1)], bytearray(raw[y * (size + 1) + 1:(y + 1) * (size + 1)])
        for x in range(size):
            left = line[x - step] if x >= step else 0
            up, corner = before[x], before[x - step] if x >= step else 0
            if filter_ == 1:
                line[x] = (line[x] + left) & 255
            elif filter_ == 2:
                line[x] = (line[x] + up) & 255
            elif filter_ == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif filter_ == 4:
                p = left + up - corner
                line[x] = (line[x] + min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]) & 255
        rows.append([tuple(line[x:x + 3]) for x in range(0, size, step)])
        before = line
    return rows


class Pictures(CommandTest):
    def setUp(self):
        if BROWSER is None:
            self.skipTest("no Chromium here (BERTH_BROWSER)")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.html, self.svg = Path(self.folder.name) / "plan.html", Path(self.folder.name) / "plan.svg"
        self.document = self.succeeds("plan", STORIES, *SMALL, "--html", self.html, "--svg", self.svg, "--json").json()

    def browse(self, page, *options):
        return subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
                               f"--user-data-dir={self.folder.name}/profile", "--host-resolver-rules=MAP * ~NOTFOUND", *options, page.as_uri()],
                              capture_output=True, text=True, timeout=300)

    def test_every_module_is_in_the_page_and_no_script_fails(self):
        ran = self.browse(self.html, "--dump-dom")
        self.assertEqual(ran.returncode, 0, ran.stderr[-2000:])
        self.assertNotIn("CONSOLE", ran.stderr)  # what a failing script or a blocked request would leave
        for unit in self.document["units"]:
            self.assertIn(unit["path"], ran.stdout)
        tips = re.findall(r"<title>([^<]*)</title>", ran.stdout)
        self.assertTrue(any("read per step" in t for t in tips), "a module's bytes and reason show on hovering")

    def test_the_filter_hides_what_does_not_match(self):
        page = self.html.read_text()
        self.assertIn("</body>", page)
        self.html.write_text(page.replace("</body>", "<script>f.value='layers.1.';f.dispatchEvent(new Event('input'))</script></body>"))
        shown = self.browse(self.html, "--dump-dom").stdout
        rows = re.findall(r"<tr( hidden=\"\")?><td>(model\\.[^< ]*|lm_head)", shown)
        self.assertTrue(rows)
        for hidden, path in rows:
            self.assertEqual(not hidden, "layers.1." in path, path)

    def test_it_is_drawn(self):
        for page in (self.html, self.svg):
            shot = Path(self.folder.name) / "shot.png"
            self.browse(page, f"--screenshot={shot}", "--window-size=700,300")
            colours = {c for row in pixels(shot) for c in row}
            for wanted in ((0x3b, 0x6f, 0xb6), (0x2f, 0x9e, 0x77)):  # the first two accelerators
                self.assertTrue(wanted in colours, f"{page.name}: a device's colour {wanted} is not in the picture")
            self.assertGreater(len(colours), 20)


if __name__ == "__main__":
    unittest.main()
