"""What the compiler made of the kernels that fold: each reads and writes packs of 16 bytes at once, and rounds as the host does.

usage: fold_ptx.py FILE.ptx      exit 0: so it is; 1: complaints on stdout
"""

import re
import sys
from pathlib import Path

WIDE = r"(?:\.global)?\.(?:v4\.[bsuf]32|v2\.[bsuf]64|b128)\b"
# Joined to an FMA or not as ptxas likes, subnormals flushed, or read past what another thread writes.
FORBIDDEN = {r"\b(?:add|sub|mul)\.f(?:16|32|64)\b": "an addition or multiplication that may become part of an FMA",
             r"\bfma\.": "an FMA", r"\.ftz\b": "subnormals that are flushed",
             r"\bld\.global\.nc\b": "a load past the caches that are kept alike"}


def complaints(ptx):
    kernels = re.split(r"(?m)^\.visible \.entry ", ptx)[1:]
    if not kernels:
        yield "there is no kernel in it"
    for kernel in kernels:
        name = re.match(r"\w+", kernel)[0]
        for what in ("ld", "st"):
            if not re.search(rf"\b{what}{WIDE}", kernel):
                yield f"{name}: no {what} of 16 bytes"
        for pattern, meaning in FORBIDDEN.items():
            if re.search(pattern, kernel):
                yield f"{name}: {meaning}"


if __name__ == "__main__":
    found = list(complaints(Path(sys.argv[1]).read_text()))
    print("\n".join(found) or "as it must be")
    sys.exit(1 if found else 0)
