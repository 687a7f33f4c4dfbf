"""Take pictures of a page in headless Chromium: desktop and phone, light and dark, and as printed."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A page of ours asks for nothing from outside; the browser itself would.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
SCREENS = {"desktop": (1280, 900, 1), "phone": (390, 844, 2)}


def find_browser() -> str | None:
    """Path of an installed Chromium; None where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def take(browser: Browser, page_file: Path, folder: Path) -> list[Path]:
    """Take all pictures of a page."""
    taken = []
    for screen, (width, height, scale) in SCREENS.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                device_scale_factor=scale,
                color_scheme=scheme,  # type: ignore[arg-type]  # one of two literals
                is_mobile=screen == "phone",
                has_touch=screen == "phone",
            )
            page = context.new_page()
            page.goto(page_file.resolve().as_uri())
            for what, whole in (("top", False), ("all", True)):
                picture = folder / f"{page_file.stem}-{screen}-{scheme}-{what}.png"
                page.screenshot(path=picture, full_page=whole)
                taken.append(picture)
            if (screen, scheme) == ("desktop", "light"):
                page.pdf(
                    path=folder / f"{page_file.stem}-print.pdf",
                    format="A4",
                    margin={"top": "15mm", "bottom": "15mm", "left": "15mm", "right": "15mm"},
                )
                taken.append(folder / f"{page_file.stem}-print.pdf")
            context.close()
    return taken


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Take pictures of pages in headless Chromium.")
    parser.add_argument("pages", type=Path, nargs="+", help="HTML files")
    parser.add_argument("--output", type=Path, default=Path("screenshots"), help="folder for the pictures")
    options = parser.parse_args(argv)
    path = find_browser()
    if path is None:
        print(
            f"screenshots: none of {', '.join(BROWSERS)} is on PATH (Debian: apt-get install chromium).",
            file=sys.stderr,
        )
        return 2
    missing = [page for page in options.pages if not page.is_file()]
    if missing:
        print(f"screenshots: there is no file {str(missing[0])!r}.", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        for page in options.pages:
            print(*take(browser, page, options.output), sep="\n")
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
