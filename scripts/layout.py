"""Prints figures about the layout of the Rust workspace in the current directory, to compare two commits by them.

It reads Rust by regular expressions and follows imports as far as names of modules and `use` lead: an estimate, made
alike for every commit. What is for tests only counts among files and lines and nowhere else.
"""

import argparse
import collections
import functools
import json
import pathlib
import re
import statistics
import subprocess
import sys

# Comments, strings and characters: names and braces in them are not code.
NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^\\'])'""", re.S)
# rustfmt has seen to it that what a line begins ends on that line or with a brace right below its beginning.
FOR_TESTS = re.compile(r"^( *)#\[cfg\(test\)\]\n(?:\1#[^\n]*\n)*\1(?:[^\n]*; *$|.*?^\1\} *$)", re.M | re.S)
TYPES = ("struct", "enum", "trait", "type")
PUBLIC = re.compile(
    rf"^ *pub (?:(?:async|const|unsafe|extern) +)*(fn|{'|'.join(TYPES)}|const|static|mod) +(\w+)", re.M
)
USE = re.compile(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;<]+);")
# What the commas of a `use` part, with the braces in it.
BRANCH = re.compile(r"(?:[^,{}]|\{(?:[^{}]|\{[^{}]*\})*\})+")
PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? +)?(?:(?:async|const|unsafe|extern) +)*fn \w+[^;{]*\{\n.*?^\1\}", re.M | re.S)
FUNCTION_LINES_MAX = 70
# Lines of src without those for tests.
PACKAGE_LINES_MAX = 12_000
TOO_LARGE = f"packages over {PACKAGE_LINES_MAX} lines"
# Nobody reads or writes it.
GENERATED = "generated.rs"
BUS, VERIFY = pathlib.Path("crates/bus/src"), pathlib.Path("crates/bus/src/verify.rs")
ROUNDS = re.compile(r"for round in 1\.\.=")
BACKOFF = pathlib.Path("crates/contract/src/backoff.rs")
DOUBLED = re.compile(r"\b2_u\d+\s*\.\w*pow\(|pause\w* \* 2\b|\* 2\)\s*\.min\(|<< [^;\n]*\bmin\(|mul\(1(?:_u\d+)? <<")


def lines_of(file):
    return file.read_text(encoding="utf-8").splitlines()


def blank(found):
    """As many spaces and lines as were found: what stands behind keeps its place."""
    return re.sub(r"[^\n]", " ", found[0])


@functools.cache
def code_with_tests_of(file):
    return NOT_CODE.sub(blank, file.read_text(encoding="utf-8"))


@functools.cache
def code_of(file):
    return FOR_TESTS.sub(blank, code_with_tests_of(file))


def shipped_lines_of(file):
    """The number of lines of a file, comments among them, without what is for tests only."""
    return len(lines_of(file)) - sum(found[0].count("\n") + 1 for found in FOR_TESTS.finditer(code_with_tests_of(file)))


def modules_of(file, module=()):
    """(path from the root of the crate on, file) of a module and of all below it."""
    yield module, file
    folder = file.parent if not module or file.name == "mod.rs" else file.with_suffix("")
    for name in re.findall(r"\bmod\s+(\w+)\s*;", code_of(file)):
        for below in filter(pathlib.Path.is_file, (folder / f"{name}.rs", folder / name / "mod.rs")):
            yield from modules_of(below, (*module, name))


def leaves(tree, before=()):
    """(path, name here) of each thing that a `use` brings."""
    path, braces, inner = tree.partition("{")
    names = (*before, *re.findall(r"[\w*]+", path))
    if braces:
        for branch in filter(str.strip, BRANCH.findall(inner.rpartition("}")[0])):
            yield from leaves(branch, names)
    elif names[-2:-1] == ("as",):
        yield names[:-2], names[-1]
    else:
        names = names[:-1] if names[-1] == "self" else names
        yield names, names[-1]


class Crate:
    """The modules of a crate, and which file needs which others."""

    def __init__(self, root):
        self.files = dict(modules_of(root))
        self.uses, self.needs = {}, {}
        for module, file in self.files.items():
            uses = USE.findall(code_of(file))
            self.uses[module] = [(bool(public), *leaf) for public, tree in uses for leaf in leaves(tree)]
        for module, file in self.files.items():
            self.needs[file] = {self.file_at(module, path) for path in self.paths(module)} - {file, None}

    def paths(self, module):
        """All that a module names. What the root only hands on, it does not need itself."""
        imported = [path for public, path, _ in self.uses[module] if module or not public]
        return imported + [tuple(path.split("::")) for path in PATH.findall(USE.sub("", code_of(self.files[module])))]

    def file_at(self, module, path, hops=8):
        """The file that defines what a module calls by a path; none if it is of another crate."""
        if path[0] == "crate":
            module, path = (), path[1:]
        elif path[0] not in ("self", "super") and (*module, path[0]) not in self.files:
            return None
        while path[:1] in (("self",), ("super",)):
            module, path = module[:-1] if path[0] == "super" else module, path[1:]
        while path and (*module, path[0]) in self.files:
            module, path = (*module, path[0]), path[1:]
        # A module may only hand on what another one defines; the bound is for names that lead round.
        onward = [source for _, source, name in self.uses[module] if hops and path[:1] == (name,)]
        return self.file_at(module, (*onward[0], *path[1:]), hops - 1) if onward else self.files[module]


def modules_needed(crate):
    """Which modules need which others beside them: of two files, the modules in which their paths part."""
    module_of = {file: module for module, file in crate.files.items()}
    needs = collections.defaultdict(set)
    for file, others in crate.needs.items():
        for other in others:
            here, there = module_of[file], module_of[other]
            same = next((at for at, pair in enumerate(zip(here, there)) if pair[0] != pair[1]), None)
            # A module and one within it are no neighbours.
            if same is not None:
                needs[here[: same + 1]].add(there[: same + 1])
                needs[there[: same + 1]] |= set()
    return needs


def circles_of(needs):
    """The largest sets of files, or of modules, in which each leads to every other one (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(file):
        order[file] = low[file] = len(order)
        stack.append(file)
        for other in sorted(needs[file]):
            if other not in order:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == order[file]:
            at = stack.index(file)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(needs):
        if file not in order:
            visit(file)
    return [circle for circle in found if len(circle) > 1]


def read_packages():
    """(name, files of src, files of tests, crates, number of test binaries) of each."""
    line = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    packages = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)["packages"]
    folders = [pathlib.Path(package["manifest_path"]).parent.relative_to(pathlib.Path.cwd()) for package in packages]
    for package, folder in zip(packages, folders):
        inner = [other for other in folders if other != folder and other.is_relative_to(folder)]
        files = {file for file in folder.rglob("*.rs") if not any(map(file.is_relative_to, inner))}
        files = {file for file in files if file.name != GENERATED}
        src = {file for file in files if file.is_relative_to(folder / "src")}
        roots = {target["src_path"] for target in package["targets"]}
        crates = [Crate(file) for file in sorted(src) if str(file.absolute()) in roots]
        binaries = sum(target["kind"] == ["test"] for target in package["targets"])
        yield package["name"], src, files - src - {folder / "build.rs"}, crates, binaries


def matches(pattern, files):
    """The place and the text of each line in which the pattern begins."""
    begins = [(file, at.start()) for file in files for at in pattern.finditer(code_of(file))]
    found = {(file, code_of(file).count("\n", 0, begin)) for file, begin in begins}
    return [f"{file}:{line + 1}: {lines_of(file)[line].strip()}" for file, line in sorted(found)]


def functions_of(file):
    """(line, number of lines) of each function: rustfmt puts its end below its beginning."""
    for found in FUNCTION.finditer(code_of(file)):
        yield code_of(file).count("\n", 0, found.start()) + 1, found[0].count("\n") + 1


def shared_types(public):
    """The names that public types of more than one package have, with those packages."""
    owners = collections.defaultdict(set)
    for package, kind, name in public:
        if kind in TYPES:
            owners[name].add(package)
    return [f"{name}: {', '.join(sorted(owners[name]))}" for name in sorted(owners) if len(owners[name]) > 1]


def measure():
    """(figures by name, what some of them count by the same name)."""
    names, src, tests, crates, binaries = zip(*read_packages())
    # A file of src that no crate has among its modules is there for tests.
    owned = [(name, file) for name, own in zip(names, crates) for crate in own for file in sorted(crate.needs)]
    owned = [(name, file) for name, file in owned if file.name != GENERATED]
    public = [(name, *item) for name, file in owned for item in PUBLIC.findall(code_of(file))]
    code = [file for _, file in owned]
    shipped = collections.Counter()
    for name, file in set(owned):
        shipped[name] += shipped_lines_of(file)
    [(largest, largest_lines)] = shipped.most_common(1)
    circles = [circle for own in crates for crate in own for circle in circles_of(crate.needs)]
    of_modules = [
        f"{name}: {' '.join('::'.join(module) for module in circle)}"
        for name, own in zip(names, crates)
        for crate in own
        for circle in circles_of(modules_needed(crate))
    ]
    functions = [(lines, f"{file}:{begin}") for file in code for begin, lines in functions_of(file)]
    # A module with modules below it is the `mod.rs` of their folder.
    beside = [str(file) for file in code if file.name != "mod.rs" and file.with_suffix("").is_dir()]
    loops = matches(ROUNDS, [file for file in code if file.is_relative_to(BUS) and file != VERIFY])
    # A number doubled in a file without durations is hardly a pause.
    timed = [file for file in code if file != BACKOFF and "Duration" in code_of(file)]
    lists = {
        "names of public types in several packages": shared_types(public),
        "import circles": [f"{len(circle)} files: {' '.join(map(str, circle))}" for circle in circles],
        "circles of modules beside each other": of_modules,
        "modules beside their folder": beside,
        f"functions over {FUNCTION_LINES_MAX} lines": [
            f"{place}: {lines}" for lines, place in sorted(functions, reverse=True) if lines > FUNCTION_LINES_MAX
        ],
        TOO_LARGE: [f"{name}: {lines}" for name, lines in shipped.most_common() if lines > PACKAGE_LINES_MAX],
        # However many loops verify.rs has, it is one place.
        "loops that settle doubtful writes": loops + [str(file) for file in code if file == VERIFY],
        "pauses doubled outside contract::backoff": matches(DOUBLED, timed),
    }
    src, tests = ({file: len(lines_of(file)) for file in sorted(set().union(*files))} for files in (src, tests))
    longest = max(src, key=src.get)
    figures = {
        "packages": len(names),
        "files of Rust in src": len(src),
        "lines of Rust in src": sum(src.values()),
        "files of Rust in tests": len(tests),
        "lines of Rust in tests": sum(tests.values()),
        "lines of the median file of src": f"{statistics.median(src.values()):g}",
        "lines of the longest file of src": f"{src[longest]}, `{longest}`",
        "lines of the largest package": f"{largest_lines}, `{largest}`",
        "public items": len(public),
        **{name: len(found) for name, found in lists.items()},
        "files in import circles": sum(map(len, circles)),
        "integration test binaries": sum(binaries),
    }
    return figures, lists


# What a check of the repository refuses.
FORBIDDEN = [
    TOO_LARGE,
    "names of public types in several packages",
    "import circles",
    "circles of modules beside each other",
    "modules beside their folder",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbose", action="store_true", help="also list what was counted")
    parser.add_argument("--check", action="store_true", help="only report what may not be: circles, shared names, large packages, other places of modules")
    arguments = parser.parse_args()
    verbose = arguments.verbose
    figures, lists = measure()
    if arguments.check:
        found = [f"{name}: {place}" for name in FORBIDDEN for place in lists[name]]
        sys.exit("\n".join(found) or None)
    print("| figure | value |\n|---|---|")
    for name, value in figures.items():
        print(f"| {name} | {value} |")
    for name, found in lists.items() if verbose else ():
        print(f"\n{name}:", *found, sep="\n- ")


main()
