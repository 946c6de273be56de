"""The picture of the report in the README, from the committed records: python docs/screenshot.py

Needs Chromium and the extras `report` and `dev` (Playwright).
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from iha.report.page.report import write_report

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "figures" / "report.png"
SIZE = {"width": 1200, "height": 860}
SHOWN = "#explorer"  # the section at the top of the picture


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium on this machine (Debian's package: chromium)")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page = write_report(Path(scratch), None, ROOT / "results", figures=False)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(viewport=SIZE, color_scheme="light")
        view.goto(page.as_uri())
        view.evaluate("(id) => { document.documentElement.style.scrollBehavior = 'auto';"
                      " document.querySelector(id).scrollIntoView(); }", SHOWN)  # fmt: skip
        view.wait_for_timeout(500)
        view.screenshot(path=PICTURE)
        browser.close()
    print(f"wrote {PICTURE}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
