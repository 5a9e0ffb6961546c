#!/usr/bin/env python3
"""Checks the systemd unit without a running systemd.

usage: unit.py [--no-measure] UNIT        exit 0: good; 1: complaints on stdout; 77: cannot be checked here
  --no-measure   of how much is exposed: what it runs is over in a moment, and hears nobody
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# systemd's own measure of what a service could do if it were taken over: 0 nothing to 10 everything. The
# unit stands at 2.0; what is left are devices, the network and seeing other processes, all of which it needs.
EXPOSURE_MAX = 2.5


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def check(unit, measure=True):
    # verify wants every program to exist, and the unit's own is not installed on a build machine. It also
    # tells unknown keys and bad values on stderr only, with exit status 0: so nothing may be said at all.
    text = re.sub(r"(?m)^(Exec\w+=[-@:+!]*)\S*/(gradringd|nvidia-\w+)\b", r"\1/usr/bin/true", Path(unit).read_text())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(unit).name
        copy.write_text(text)
        verified = run("systemd-analyze", "verify", "--man=no", str(copy))
        if verified.returncode != 0 or verified.stderr.strip():
            yield f"systemd-analyze verify: {verified.stderr.strip() or verified.returncode}"
        if not measure:
            return
        # CUDA's own folder for the pipes of MPS is in /tmp, where a service that has its own finds none.
        if re.search(r"(?m)^PrivateTmp=(yes|true)$", text) and not re.search(r"(?m)^Environment=CUDA_MPS_PIPE_DIRECTORY=/run/", text):
            yield "with PrivateTmp it finds no MPS: CUDA_MPS_PIPE_DIRECTORY is not a folder in /run"
        rated = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                    f"--threshold={EXPOSURE_MAX * 10:.0f}", str(copy))
        verdict = (rated.stdout.strip().splitlines() or [rated.stderr.strip()])[-1]
        print(verdict)
        if rated.returncode != 0:
            yield f"systemd-analyze security: more than {EXPOSURE_MAX} is exposed: {verdict}"


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("SKIPPED: systemd-analyze is not installed (package systemd), so the unit was not checked")
        sys.exit(77)
    complaints = list(check(sys.argv[-1], measure="--no-measure" not in sys.argv))
    print("\n".join(complaints) or "the unit is in order")
    sys.exit(1 if complaints else 0)
