"""Pictures of a report, light and dark, for the README and the pages: summary, layers, tensors, graph.

D=examples/digits
qprof quantize $D/model.onnx --data $D/calibration --holdout-data $D/heldout --labels $D/heldout/labels.txt \\
    --check-speed --report out/report -o out/digits.int8.onnx
python docs/pictures.py out/report/report.html docs/images

Needs playwright and the system's Chromium, see tests/quantizer/plugins/report/test_browser.py.
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

WIDTH, HEIGHT = 1280, 800
SECTIONS = {
    "report": "summary",
    "report-layers": "parts",
    "report-tensors": "tensors",
    "report-graph": "graph",
}
"""Name of a picture -> section at its top."""


def take(page: Page, section: str, path: Path) -> None:
    """Write what a window shows with a section at its top."""
    top = page.locator(f"#{section}").evaluate(
        "section => section.getBoundingClientRect().top + scrollY - 14"
    )
    page.evaluate("top => scrollTo({ top, behavior: 'instant' })", 0 if section == "summary" else top)
    page.wait_for_timeout(200)
    page.mouse.move(0, 0)
    with Image.open(BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def main(report: Path, folder: Path) -> None:
    """Write a picture of each section in both themes."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("no chromium on this system: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
            page.goto(report.resolve().as_uri())
            if page.locator("#more").count():
                page.locator("#more > summary").click()
            page.wait_for_selector("#map rect")
            for name, section in SECTIONS.items():
                path = folder / f"{name}-{theme}.png"
                take(page, section, path)
                print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
