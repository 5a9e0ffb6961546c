"""Tells what others' libraries lie in a tarball or a wheel: an SPDX document, and their licences' texts.

usage: sbom.py NAME VERSION OUT.spdx.json [--texts FOLDER] <FILES
       sbom.py --wheel FILE.whl VERSION OUT.spdx.json

FILES has a line "path debian-package" for each bundled file; of a wheel they are found by the names of its libraries, which must be
installed here. Licences are read from Debian's copyright files: the names that stand there, put into SPDX's spelling where that
has one, else as LicenseRef-.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

# Debian's names, in lower case, that SPDX spells otherwise.
SPDX = {"apache-2.0": "Apache-2.0", "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "expat": "MIT", "isc": "ISC",
        "mit": "MIT", "zlib": "Zlib", "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only",
        "gpl-3+": "GPL-3.0-or-later", "lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later", "lgpl-2.1": "LGPL-2.1-only",
        "lgpl-2.0+": "LGPL-2.0-or-later", "lgpl-3.0+": "LGPL-3.0-or-later", "gpl-2.0+": "GPL-2.0-or-later",
        "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3": "LGPL-3.0-only", "lgpl-3+": "LGPL-3.0-or-later", "lgpl2.1+": "LGPL-2.1-or-later",
        "boost-1.0": "BSL-1.0", "bsl-1.0": "BSL-1.0", "cc0-1.0": "CC0-1.0", "cc0": "CC0-1.0"}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def copyright_file(package):
    return Path("/usr/share/doc") / package.split(":")[0] / "copyright"


def licences_of(package):
    """Of anything in its source, build scripts and all: more than what is in the library, never less."""
    text = copyright_file(package).read_text(errors="replace")
    if "Format:" not in text[:300]:
        return [f"LicenseRef-{re.sub(r'[^A-Za-z0-9.-]', '-', package.split(':')[0])}-copyright"]
    names = {word.strip(" ,()") for line in re.findall(r"(?mi)^License:[ \t]*(\S.*)$", text)
             for word in re.split(r"\s+(?:and(?:/or)?|or|with)\s+|,|\|", line)}
    return sorted({SPDX.get(name.lower(), "LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)) for name in names if name})


def common_licences_of(package):
    """Texts that its copyright file names instead of repeating them."""
    named = set(re.findall(r"/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]", copyright_file(package).read_text(errors="replace")))
    return [Path(name) for name in sorted(named) if Path(name).exists()]


def facts_of(package):
    return run("dpkg-query", "-W", "-f=${Version}\t${source:Package}\t${Homepage}", package).split("\t")


def document(name, version, files):
    """`files`: {path: (package, sha256 or None)}."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    packages, relations, extracted = [], [], set()
    packages.append({"SPDXID": "SPDXRef-gradring", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
                     "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
                     "copyrightText": "the gradring authors"})
    for package in sorted({package for package, _ in files.values()}):
        debian_version, source, homepage = facts_of(package)
        licences = licences_of(package)
        extracted |= {one for one in licences if one.startswith("LicenseRef-")}
        identity = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package.split(":")[0])
        held = sorted(path for path, (owner, _) in files.items() if owner == package)
        packages.append({"SPDXID": identity, "name": package.split(":")[0], "versionInfo": debian_version,
                         "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "sourceInfo": f"Debian source package {source}",
                         **({"homepage": homepage} if homepage else {}), "licenseConcluded": "NOASSERTION",
                         "licenseDeclared": " AND ".join(licences), "copyrightText": "NOASSERTION",
                         "comment": "as " + ", ".join(f"{path} (sha256 {files[path][1]})" for path in held)})
        relations.append({"spdxElementId": "SPDXRef-gradring", "relationshipType": "CONTAINS", "relatedSpdxElement": identity})
    digest = hashlib.sha256(json.dumps([name, version, sorted(files.items())]).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{name}-{version}",
            "documentNamespace": f"urn:gradring:sbom:{digest}",
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
                             "creators": ["Tool: gradring-tools-packaging-sbom"]},
            "packages": packages,
            "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                               "relatedSpdxElement": "SPDXRef-gradring"}, *relations],
            "hasExtractedLicensingInfos": [{"licenseId": one, "extractedText":
                                            "See the copyright file of the package, as distributed by Debian.",
                                            "name": one.removeprefix("LicenseRef-")} for one in sorted(extracted)]}


def libraries_of(wheel):
    """{path: (package, sha256)} of the libraries in it that are not our own."""
    import bundle  # noqa: PLC0415  (needed here alone)
    known = dict(re.findall(r"(?m)^\s+(\S+) \(.*\) => (/\S+)$", run("/sbin/ldconfig", "-p")))
    held = {}
    with zipfile.ZipFile(wheel) as content:
        for path in content.namelist():
            name = Path(path).name
            if not re.match(r"lib.*\.so", name) or name.startswith("libgradring"):
                continue
            if name not in known:
                sys.exit(f"sbom.py: {name} of the wheel is not installed here: what package it came from cannot be told")
            held[path] = (Path(known[name]), hashlib.sha256(content.read(path)).hexdigest())
    owners = bundle.packages_of([source for source, _ in held.values()])
    return {path: (owners[source], digest) for path, (source, digest) in held.items()}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("words", nargs="+")
    said = parser.parse_args()
    if len(said.words) != (2 if said.wheel else 3):
        parser.error(f"{' '.join(said.words)}: too few words, or too many")
    if said.wheel and not said.wheel.is_file():
        parser.error(f"there is no {said.wheel}")
    if said.wheel:
        name, (version, out), files = "gradring (Python package)", said.words, libraries_of(said.wheel)
    else:
        name, version, out = said.words
        root = Path(out).resolve().parent
        files = {}
        for line in sys.stdin.read().splitlines():
            path, package = line.split()
            files[path] = (package, hashlib.sha256((root / path).read_bytes()).hexdigest())
    Path(out).write_text(json.dumps(document(name, version, files), indent=1) + "\n")
    for package in {package for package, _ in files.values()} if said.texts else ():
        said.texts.mkdir(parents=True, exist_ok=True)
        shutil.copy(copyright_file(package), said.texts / package.split(":")[0])
        for text in common_licences_of(package):
            shutil.copy(text, said.texts / text.name)


if __name__ == "__main__":
    main()
