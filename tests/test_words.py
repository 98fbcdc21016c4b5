"""One vocabulary, that of docs/glossary.md, in identifiers and in every text that users read."""

from __future__ import annotations

import ast
import gc
import io
import re
import tokenize
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from kdissect.cli.main import kdissect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "kdissect").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALL = [
    *SOURCES,
    *TESTS,
    *(path for name in ("benchmarks", "docs", "samples") for path in (ROOT / name).glob("*.py")),
]

PHRASES = {
    r"\bwhoever\b": "",
    r"\btold\b|\btells? (what|which|how|whether|it)\b": r"^kdissect/(net/duplex|spark/parts)\.py",
    r"\b(what|which) (was|is|were) asked\b|\basked for\b": "",
    r"\b(bytes|KB|MB|B) (asked|answered)\b": "",
    r"\bpassed over\b": "",
    r"\blook(s|ed)? (at|into|whether)\b": "",
    r"\blets? go\b": "",
    r"\bwrong or odd\b": "",
    r"\bgreetings?\b": "",
    r"\bsomebody\b|\banybody\b": "",
    r"\bstands? (behind|beside|before|in quotes)\b": "",
    r"\bis no (time|size|port|count|duration|offset|partition|rule|interface|address|table)\b": "",
    r"\bexclude each other\b": "",
    r"\bthis program\b": "",
    r"\bof its own\b": "",
    r"(?<=\s)(sub)?folders?\b|\b[Ff]olders?(?=[\s,.:;])": "",
    r"\b([Cc]lient|[Tt]opic|[Mm]ember|[Gg]roup|[Pp]roducer|[Ee]xchange|[Cc]onnection) ids?\b": "",
    r"\b([Cc]orrelation|[Tt]ransactional|[Ss]chema|[Tt]race|[Bb]roker|[Nn]ode) ids?\b": "",
    r"\b[Ss]ome (hundred|thousand|\d)": "",
    r"\b(ID|name|code)s? or pattern\b|\bquoted pattern\b": "",
    r"\b(nothing|what) begins like\b|\bfollowed by something else\b": "",
    r"\bone side's bytes\b|\bwithout news\b|\bprove nothing\b": "",
    r"\d %": "",
    r"\bno \w+ and no \w+ yet\b|\bis found in\b": "",
    r"\brefus(es?|ing)\b|\b(batch(es)?|requests?|commits?|records?|calls?) (was |were )?refused\b": "",
    r"\bin vain\b|\bfared\b|\bsent again\b|\bof its own\b|\bof their own\b|\bat TCP level\b": "",
    r"\bright behind\b|\bbehind a request\b|\bends? without a byte\b|\bthe network delivers\b": "",
    r"\bfinds? no\b|\ban? \w+ that \w+ is none\b|\ban error from \d\b|(?:^|\. )Any[;,] ": "",
    r"\bbelongs? into\b|\bremed(y|ies)\b|\brecommendations?\b|\bgave up on\b": "",
    r"\bis no (struct|value|error)\b|\b[Ss]ome \d|(?<=[a-z}] )withheld\b": "",
    r"(\w+ ){1,3}\1{2}": "",  # "Write Write Write"
    r"\bran beside\b|\bbeside other work\b|\bthis scene\b|\bscene once more\b|\b(in|of) \w+ turns\b": "",
    r"\bby what followed\b|\bshown or not\b|\bwas measured apart\b|\banother size than\b": "",
    r"\bthat belongs? to no\b|\bis missing a part\b|\bare missing a part\b|\bonly one side of\b": "",
    r"\b(speaks?|spoke) against\b|\bwell-kept\b|\b(filter|depends) besides\b|\bwhat is (usual|odd)\b": "",
    r"\bis another kind of\b|\bhas other columns\b|\bbegun to (write|read)\b|[\d}] %": "",
    r"\{_[A-Z]\w+[,:}]": "",  # an f-string without its f
    r"\b(recognis|analys(?!is\b|es\b)|summaris|resynchronis(?!ed\b)|authoris)\w+": r"^CHANGELOG\.md",
}
"""Patterns that no text for users contains, each with a pattern of `PLACE TEXT` where it is right."""

PROSE = (
    r"\bwhoever\b|\bnobody asked\b|\b(if|unless) asked\b|\basked for\b",
    r"\b(is|are|be|was|were|been|not|must be) (told|taught|asked)\b|\bteach(es)?\b|\btaught\b|\blessons?\b",
    r"\bpassed over\b|\blets? go\b|\bgreetings?\b|\bwrong or odd\b",
    r"\bin vain\b|\b(idle|outstanding) for longest\b",
    r"(?<![`\w])(sub)?folders?\b(?!: )",
    r"\b([Tt]opic|[Cc]lient|[Mm]ember|[Gg]roup|[Pp]roducer|[Tt]ransactional) ids?\b",
    r"\b([Nn]ode|[Bb]roker|[Cc]luster) ids?\b",
    r"\bthis program\b|\d %",
)
"""Patterns that no docstring or comment contains."""

PACKAGE_PROSE = (
    r"\b(an?|no) \w+( \w+)? of (its|their) own\b|\b[Ss]ome \d|\b(give|gave) up\b|\bthat is no (?!longer)",
)
"""Patterns that no docstring or comment of the package contains."""

WORDS = (
    r"told|tells?|ask(s|ed)?|taught|teach(es)?|made|found|meant|want(s|ed)?|lesson|whoever|heard|begun|said|"
    r"folders?|sentences?|withh(old|olds|eld)|apprais(e|es|ed|al)|mistrust|objections?|"
    r"most|least|takers?|hunts?|badness|nap|homes|lasting|news"
)
IDENTIFIER = re.compile(rf"(^|_)({WORDS})(_|$)")
ALLOWED = (
    r"tell (kdissect/(files|capture/(source|stores)|tables/\w+)|tests/capture/test_stores)\.py|"  # Python's
    r"\w*_not_found_error |"  # also Python's
    r"want_read_error |"  # pyOpenSSL's
    r"\w*_not_found kdissect/|"  # exceptions of Spark
    r"\w*sentences?\w* (tests/|kdissect/cli/help\.py)|"
    r"found (kdissect/(cli/spark/doctor|spark/requirements)\.py|tests/spark/)|"  # a JSON key of doctor
    r"test_\w*(news|takers?)\w* |"
    r"_?(at_(most|least)|most_(common|first|frequent))\w* |"  # but a limit is max_ or min_
    r"\w*(most|least)\w* (tests|benchmarks)/"
)
"""Patterns of ``IDENTIFIER PLACE`` where it is right."""


NAMED: dict[type[ast.AST], Callable[[Any], str | None]] = {
    ast.Name: attrgetter("id"),
    ast.Attribute: attrgetter("attr"),
    **dict.fromkeys((ast.arg, ast.keyword), attrgetter("arg")),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), attrgetter("name")),
}
"""Nodes with an identifier; a keyword argument ``**`` has none."""


@pytest.fixture(scope="module", autouse=True)
def _trees_of_this_module_alone() -> Iterator[None]:
    """A million nodes, in none of which is garbage. Later tests would take longer if they stayed."""
    gc.disable()
    yield
    nodes_of.cache_clear()
    gc.enable()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def identifiers_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name, in snake case, of each identifier that a module defines or uses."""
    for node in nodes_of(path):
        if (name_of := NAMED.get(type(node))) and (name := name_of(node)):
            yield getattr(node, "lineno", 0), snake_case(name)


@cache
def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@cache
def is_of_the_old_dialect(name: str) -> bool:
    return IDENTIFIER.search(name) is not None


def test_no_identifier_is_of_the_old_dialect() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in ALL
        for line, name in identifiers_of(path)
        if is_of_the_old_dialect(name) and not re.match(ALLOWED, f"{name} {path.relative_to(ROOT)}")
    ]
    assert not faults, "\n".join(faults)


def test_no_identifier_in_java_is_of_the_old_dialect() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "samples" / "java").rglob("*.java"))
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if re.search(r"\b([Tt]old|[Tt]ells?|[Aa]sk(s|ed)?|[Tt]aught|[Tt]each(es)?|[Ll]esson|whoever)\b", line)
    ]
    assert not faults, "\n".join(faults)


RUST_DEFINITION = re.compile(
    r"\b(?:fn|struct|enum|union|trait|type|const|static|mod)\s+(\w+)|\blet\s+(?:mut\s+)?(\w+)"
)
RUST_ALLOWED = r"\w*(found|at_most)\w* .*"


def test_no_identifier_in_rust_is_of_the_old_dialect() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in sorted((ROOT / "core" / "src").rglob("*.rs"))
        for number, line in enumerate(path.read_text().split("\n"), 1)
        for groups in RUST_DEFINITION.findall(line.partition("//")[0])
        for name in groups
        if IDENTIFIER.search(name.lower())
        and not re.fullmatch(RUST_ALLOWED, f"{name.lower()} {path.relative_to(ROOT)}")
    ]
    assert not faults, "\n".join(faults)


def test_modules_that_tests_import_exist() -> None:
    """A renamed helper breaks tests that the quick checks do not collect."""
    faults = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}"
        for path in TESTS
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("tests.")
        and not (module := ROOT / node.module.replace(".", "/")).with_suffix(".py").exists()
        and not module.is_dir()
    ]
    assert not faults, "\n".join(faults)


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not {name: each for name, each in places.items() if len(each) > 1}


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings of a module, without docstrings."""
    skipped = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.lineno, node.value


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings and comments of a module."""
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, " ".join(str(node.value.value).split())
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the path of each command and its help."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                yield from helps(inner, click.Context(inner, context, name, **inner.context_settings))


@cache
def all_texts() -> list[tuple[str, str]]:
    return list(_all_texts())


def _all_texts() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        for line, text in texts_of(path):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for path, text in helps(
        kdissect, click.Context(kdissect, info_name="kdissect", **kdissect.context_settings)
    ):
        yield f"{path} --help", " ".join(text.split())
    pages = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    for page in (*(ROOT / name for name in pages), *sorted((ROOT / "docs").rglob("*.md"))):
        if page.name in ("glossary.md", "incidents.md"):  # old words beside new ones; quotations
            continue
        for number, line in enumerate(page.read_text().split("\n"), 1):
            yield f"{page.relative_to(ROOT)}:{number}", line


@cache
def code_prose() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for path in ALL
        if path != Path(__file__).resolve()  # has the patterns
        for line, text in prose_of(path)
    ]


@pytest.mark.parametrize("phrase", [*PROSE, *PACKAGE_PROSE])
def test_no_docstring_or_comment_has(phrase: str) -> None:
    search = re.compile(phrase).search
    faults = [
        f"{place}: {result[0]!r} in {text[:80]!r}"
        for place, text in code_prose()
        if (result := search(text)) and (phrase in PROSE or place.startswith("kdissect/"))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_text_for_users_has(phrase: str) -> None:
    allowed, search = PHRASES[phrase], re.compile(phrase).search
    faults = [
        f"{place}: {result[0]!r} in {text[:80]!r}"
        for place, text in all_texts()
        if (result := search(text)) and not (allowed and re.search(allowed, place + " " + text))
    ]
    assert not faults, "\n".join(faults)
