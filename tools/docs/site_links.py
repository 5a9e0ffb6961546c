"""What mkdocs.yml needs beside docs/: pages that lie elsewhere in the tree, and the files that pages link to.

mkdocs calls on_files and on_page_markdown (its "hooks"). On the site a link leads where it leads in the tree: to the
page, or to a copy of the file. A link to a folder is left out, and its text stays.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

# Pages from outside docs/, by what they are called on the site.
ELSEWHERE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md",
             "security-policy.md": "SECURITY.md", "examples.md": "client/python/examples/README.md",
             "examples-c.md": "client/examples/README.md"}
ON_SITE = {path: uri for uri, path in ELSEWHERE.items()}
COPIES = "source"
LINK = re.compile(r"(?P<before>!?\[(?P<text>[^\]]*)\])\((?!https?:|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def root_of(config):
    return Path(config.config_file_path).parent


def path_of(uri):
    """Where the page lies in the tree."""
    return ELSEWHERE.get(uri, f"docs/{uri}")


def uri_of(path):
    """Where a file of the tree lies on the site."""
    if path in ON_SITE:
        return ON_SITE[path]
    return path[len("docs/"):] if path.startswith("docs/") else f"{COPIES}/{path}"


def target(page_path, link):
    return posixpath.normpath(posixpath.join(posixpath.dirname(page_path), link))


def copies(root, texts):
    """Files outside docs/ that pages link to. `texts`: of the pages, by their paths in the tree."""
    found = set()
    for path, text in texts.items():
        for match in LINK.finditer(text):
            to = target(path, match["path"])
            if not to.startswith(("docs/", "..")) and to not in ON_SITE and (root / to).is_file():
                found.add(to)
    return sorted(found)


def renewed(root, uri, text):
    """The page's text with links as they are on the site."""
    def link(match):
        to = target(path_of(uri), match["path"])
        if (root / to).is_dir():
            return match["text"]
        if not (root / to).is_file():
            return match[0]  # no link at all, as in C++, or one that mkdocs complains about
        there = posixpath.relpath(uri_of(to), posixpath.dirname(uri) or ".")
        return f"{match['before']}({there}{match['anchor'] or ''})"
    return LINK.sub(link, text)


def on_files(files, config):
    root = root_of(config)
    texts = {path_of(file.src_uri): Path(file.abs_src_path).read_text(encoding="utf-8")
             for file in files if file.src_uri.endswith(".md")}
    for uri, path in ELSEWHERE.items():
        texts[path] = (root / path).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=texts[path]))
    for path in copies(root, texts):
        files.append(File.generated(config, uri_of(path), abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown, page, config, **_):
    return renewed(root_of(config), page.file.src_uri, markdown)
