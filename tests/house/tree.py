"""The files of the project, for the checks in this folder."""

import subprocess
from pathlib import Path

SKIPPED_FOLDERS = ("build", ".git", ".cache", ".venv", "__pycache__")


def files(root):
    """Paths relative to root of everything that is, or is about to be, part of the project."""
    try:
        listing = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout
        found = [Path(name) for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # a tarball, or git is not there
        found = [path.relative_to(root) for path in root.rglob("*")]
    return sorted(path for path in set(found)
                  if (root / path).is_file() and not path.parts[0].startswith(SKIPPED_FOLDERS)
                  and not any(part in SKIPPED_FOLDERS for part in path.parts))


def text_of(path):
    """The content, or None for a file that is not text."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")
