"""The size and structure of the package in numbers: `python docs/house.py [CHECKOUT]`.

Files; lines of code, without blanks, comments and docstrings; import cycles, those for types included; class
names that are defined more than once; both also of the native core; modules with one importer;
files that `kdissect read` runs through; and, once it has started, how often it calls a function and enters
another file for each exchange; and of what there should be only one, with how many there were.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

WALK = """
import sys
files, calls, changes, last = set(), 0, 0, None
def note(frame, event, arg):
    global calls, changes, last
    file = frame.f_code.co_filename
    if event == "call" and "/kdissect/" in file and frame.f_code.co_name != "<module>":
        files.add(file)
        calls += 1
        changes += file != last
        last = file
from kdissect.cli.main import main
command = ["read", "-j", "1", "samples/kafka-4-basics.pcap"]
sys.setprofile(note)
assert main(command) == 0
started = len(files)
calls = changes = 0
main(command)
sys.setprofile(None)
print(started, calls, changes, file=sys.stderr)
"""
EXCHANGES = 246  # in that capture


def code_lines(text: str) -> int:
    """Lines that hold code."""
    documents: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for each in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and each.end_lineno:
                documents.update(range(each.lineno, each.end_lineno + 1))
    lines: set[int] = set()
    blank = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in blank:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documents)


def texts_of(root: Path) -> dict[str, str]:
    """Module -> its source."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path.read_text(
            "utf-8"
        )
        for path in sorted(root.glob("kdissect/**/*.py"))
    }


@cache
def trees_of(root: Path) -> dict[str, ast.Module]:
    """Module -> its syntax tree."""
    return {name: ast.parse(text) for name, text in texts_of(root).items()}


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a syntax tree."""
    return list(ast.walk(tree))


def imports(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    result: dict[str, set[str]] = {}
    for name, tree in trees.items():
        names = set()
        for node in nodes_of(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    names.add(full if full in trees else node.module)
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        result[name] = (names & trees.keys()) - {name}
    return result


def rust_texts_of(root: Path) -> dict[str, str]:
    """Module of the native core -> its source without tests and comments."""
    source = root / "core" / "src"
    return {
        "::".join(path.relative_to(source).with_suffix("").parts).removesuffix("::mod"): re.sub(
            "//.*", "", path.read_text("utf-8").partition("#[cfg(test)]\nmod tests")[0]
        )
        for path in sorted(source.rglob("*.rs"))
    }


def rust_imports(texts: dict[str, str]) -> dict[str, set[str]]:
    """Module of the native core -> those that it names by their paths."""
    return {
        name: (
            {f"{room}::{file}" for room, file in re.findall(r"\bcrate::(\w+)::(\w+)", text)} & texts.keys()
        )
        - {name}
        for name, text in texts.items()
    }


def rust_types(texts: dict[str, str]) -> Counter[str]:
    """Names of types and traits of the native core -> how often each is defined, without associated types."""
    definition = re.compile(
        r"^(?:\s*(?:pub(?:\(\w+\))? )?(?:struct|enum|union|trait)|(?:pub(?:\(\w+\))? )?type) (\w+)",
        re.MULTILINE,
    )
    return Counter(name for text in texts.values() for name in definition.findall(text))


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import one another, by whatever way."""

    def reached(start: str) -> set[str]:
        seen, todo = set[str](), [start]
        while todo:
            for each in graph[todo.pop()] - seen:
                seen.add(each)
                todo.append(each)
        return seen

    reach = {name: reached(name) for name in graph}
    result = {
        frozenset(each for each in reach[name] if name in reach[each])
        for name in graph
        if name in reach[name]
    }
    return sorted(sorted(each) for each in result)


class Door(NamedTuple):
    """A way between parts of the program of which one is enough; ``before``: that there was one for all."""

    name: str
    before: int
    now: int


def doors(root: Path) -> list[Door]:
    """What has to be read more than once if there are several of it."""
    trees = trees_of(root)
    rust = rust_texts_of(root)
    stub = (root / "kdissect" / "_core.pyi").read_text("utf-8")
    follow = re.findall(r"def follow\(self, \w+: (\w+)", stub)
    states = re.findall(
        r"def (?:lend|recall|ended)\(self, (?:state: (\w+))?[^)]*\) -> (?:list\[)?(\w+)", stub
    )
    calls = {
        ".".join(name.split(".")[:2])
        for name, tree in trees.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Plan"
    }
    runs = {
        node.name
        for name, tree in trees.items()
        if re.match(r"kdissect\.(cli|runs|spark)\b", name)
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Run")
    }
    return [
        Door("ways into a counter", 3, len(ways_into_counters(trees))),
        Door("forms in which an exchange leaves the core", 5, len(set(follow))),
        Door("places that decide whether one does", 9, len(calls)),
        Door("runs", 4, len(runs)),
        Door("protocols for the state of a connection", 5, len({a or b for a, b in states})),
        Door("circles in Rust", 2, len(cycles(rust_imports(rust)))),
        Door("names of types in Rust that stand for several", 19, repeated(rust_types(rust))),
    ]


def ways_into_counters(trees: dict[str, ast.Module]) -> set[str]:
    """Names of the public methods by which counters take tallies. Counters are the classes in ``stats`` that
    say what they take, and those derived from them.
    """
    classes = [
        node
        for name, tree in trees.items()
        if name.startswith("kdissect.stats.")
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef)
    ]
    counters = {node.name for node in classes for each in node.body if "takes" in names_set_by(each)}
    while more := {
        node.name
        for node in classes
        if node.name not in counters and counters & {ast.unparse(base) for base in node.bases}
    }:
        counters |= more
    return {
        method.name
        for node in classes
        if node.name in counters
        for method in node.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
        for argument in method.args.args
        if argument.annotation and re.search(r"\b(Facts|Alike|Tally)\b", ast.unparse(argument.annotation))
    }


def names_set_by(node: ast.stmt) -> set[str]:
    """What a line of the body of a class sets."""
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return {each.id for each in targets if isinstance(each, ast.Name)}


def repeated(names: Counter[str]) -> int:
    """How many of them there are more than once."""
    return sum(count > 1 for count in names.values())


def main() -> None:
    """Print the numbers."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    texts, trees = texts_of(root), trees_of(root)
    graph = imports(trees)
    classes = Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    importers = Counter(each for names in graph.values() for each in names)
    done = subprocess.run(
        [sys.executable, "-c", WALK],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(root)},
    )
    walked, calls, changes = map(int, done.stderr.split()[-3:])
    print(f"files                          {len(texts):>7,}")
    print(f"lines of code                  {sum(map(code_lines, texts.values())):>7,}")
    print(f"import cycles                 {len(cycles(graph)):>7,}")
    for cycle in cycles(graph):
        print(f"    {' '.join(cycle)}")
    print(f"class names defined twice      {repeated(classes):>7,}")
    rust = rust_texts_of(root)
    print(f"the native core: files         {len(rust):>7,}")
    print(f"    import cycles              {len(cycles(rust_imports(rust))):>7,}")
    print(f"    type names defined twice   {repeated(rust_types(rust)):>7,}")
    print(f"modules with one importer      {sum(count == 1 for count in importers.values()):>7,}")
    print(f"files that read runs through   {walked:>7,}")
    print(f"    calls per exchange         {calls / EXCHANGES:>7,.0f}")
    print(f"    file changes per exchange  {changes / EXCHANGES:>7,.0f}")
    for door in doors(root):
        print(f"{door.name:<51}{door.before:>3} -> {door.now}")


if __name__ == "__main__":
    main()
