"""The notices of third parties: the licence texts of everything in the image that others wrote."""

import pathlib
import re

from errors import Refused

# Names of files with a licence, a notice or a list of authors, wherever they lie in a crate.
NAMES = re.compile(r"(LICEN[SC]E|COPYING|NOTICE|COPYRIGHT|UNLICENSE)", re.I)
# Code and data that a crate carries for its own tests, and does not compile into anything.
SKIPPED = {"tests", "benches", "examples", "fuzz", "target"}
# For crates whose archives hold no text: what the name of the licence stands for.
MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
RULE = "-" * 100
HEAD = """\
The program ailoop in this image contains the crates below, and beside it are libraries of the operating system.
Their licences follow: each text once, with everything that it holds for.
The notices of Rust's standard library are in rust-library.html beside this file.
"""


def files(folder):
    """The files of a crate that hold a licence."""
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and NAMES.match(path.name) and not SKIPPED & set(inside.parts[:-1]) and path.suffix != ".rs":
            found.append(path)
    return found


def texts(crate, apache):
    """The licence texts of a crate; `apache` is the text of that licence."""
    found = [path.read_text(encoding="utf-8", errors="replace") for path in files(crate.folder)]
    if found:
        return found
    if crate.licence == "Apache-2.0":
        return [apache]
    if crate.licence == "MIT":
        holders = (
            ", ".join(re.sub(r" *<.*?>", "", author) for author in crate.authors) or f"the authors of {crate.name}"
        )
        return [f"Copyright (c) {holders}\n\n{MIT}"]
    raise Refused(
        f"{crate.name} {crate.version} ({crate.licence}) has no licence text: add one to scripts/image/notices.py"
    )


def write(crates, packages, apache):
    """The whole file. `packages` are those of the operating system."""
    lines, by_text = [HEAD], {}
    for crate in crates:
        label = f"{crate.name} {crate.version}"
        lines.append(f"  {label} ({crate.licence}) {crate.repository}".rstrip())
        for text in texts(crate, apache):
            # Copies of a text differ in their line ends and indents.
            by_text.setdefault(" ".join(text.split()), (text.strip(), []))[1].append(label)
    for package in packages:
        label = f"{package.name} {package.version}"
        lines.append(f"  {label} ({package.distribution})")
        text = pathlib.Path(package.copyright).read_text(encoding="utf-8", errors="replace")
        by_text.setdefault(" ".join(text.split()), (text.strip(), []))[1].append(label)
    for text, labels in by_text.values():
        clean = "\n".join(line.rstrip() for line in text.splitlines())
        lines += ["", RULE, ", ".join(dict.fromkeys(labels)), RULE, "", clean]
    return "\n".join(lines) + "\n"
