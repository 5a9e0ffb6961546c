"""The documents as a site: every page is in its menu, every link and every heading that is linked to is there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the site is built by mkdocs, which is not installed (pip install mkdocs)")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

import site_links  # noqa: E402  (found by the line above)


def test_it_is_built_without_a_warning(tmp_path):
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", ROOT / "mkdocs.yml",
                           "--site-dir", tmp_path / "site"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("index.html")}
    assert {"index.html", *(f"{page.stem}/index.html" for page in (ROOT / "docs").glob("*.md"))} <= pages
    home = (tmp_path / "site/index.html").read_text()
    assert 'src="architecture.svg"' in home and '"docs/' not in home
    assert (tmp_path / "site/source/client/include/gradring/gradring.h").is_file(), "a file that a page links to"


def test_links_lead_where_they_lead_in_the_tree():
    def link(uri, text):
        return site_links.renewed(ROOT, uri, text)
    assert link("index.md", "[a](docs/python.md#x) ![b](docs/architecture.svg)") == "[a](python.md#x) ![b](architecture.svg)"
    assert link("python.md", "[a](../README.md) [b](../SECURITY.md)") == "[a](index.md) [b](security-policy.md)"
    assert link("topology.md", "[a](../systemd/gradringd.conf)") == "[a](source/systemd/gradringd.conf)"
    assert link("topology.md", "see [the folder](../tests/machines).") == "see the folder."
    for text in ("[a](https://example.org/x.md)", "`[](int)`", "[a](nowhere.md)", "[a](#here)"):
        assert link("python.md", text) == text
