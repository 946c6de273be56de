"""Links of the documentation lead somewhere, every page is in the site, and the site builds without a warning."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    missing = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in headings(linked)):
            missing.append(target)
    assert not missing


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them from headings."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_pages_of_the_site_do_not_link_outside_it():
    """The site holds docs/ alone: a link to the repository's other files would be dead there."""
    for page in ROOT.glob("docs/**/*.md"):
        outside = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if target.startswith("../../")]
        outside += [
            target
            for target in LINK.findall(page.read_text(encoding="utf-8"))
            if target.startswith("../") and page.parent == ROOT / "docs"
        ]
        assert not outside, page.name


def test_every_page_is_in_a_table_of_contents():
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        assert name == "index" or re.search(rf"^{re.escape(name)}$", contents, flags=re.MULTILINE), name


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="sphinx is not installed (the extra 'docs')")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(tmp_path),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "api" / "operator.html").exists()
