"""What the house rules promise about the tree itself: its documents agree with the program."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from packaging.requirements import Requirement

import kdissect
from docs import generate, house
from kdissect.cli.main import kdissect as command_line

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
README_SHOWS_WITHIN = 25  # lines


def documents() -> list[Path]:
    """Every page that people read."""
    pages = [
        *ROOT.glob("*.md"),
        *(
            path
            for directory in ("docs", "samples", "benchmarks", "tests")
            for path in ROOT.glob(f"{directory}/**/*.md")
        ),
    ]
    return sorted(pages)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert kdissect.__version__ == project["version"]


# --- documents ----------------------------------------------------------------------------------------------


def test_generated_documents_are_up_to_date() -> None:
    assert "\n".join(generate.differences()) == "", "run: python docs/generate.py"


def test_constraints_pin_what_pyproject_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    allowed = [*project["dependencies"]]
    for extra in ("metrics", "parquet", "report", "schemas", "telemetry", "tls"):
        allowed += extras[extra]
    pinned: dict[str, str] = {}
    for text in (ROOT / "constraints.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if "==" in text and not text.lstrip().startswith("#"):
            name, version = text.split()[0].split("==")
            pinned[name] = version
            assert "--hash=sha256:" in text
    for each in map(Requirement, allowed):
        assert each.specifier.contains(pinned[each.name]), each


def test_every_command_is_documented() -> None:
    index = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(command_line, info_name="kdissect")
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        assert command.help, f"{name} has no help"
        assert f"| [kdissect {name}](cli/kdissect-{name}.md) | {command.help.splitlines()[0]}" in index
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, f"{name} {option.name} has no help"


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{name_of(path)}: {target}"
        for path in documents()
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_every_benchmark_says_what_it_answers() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in ROOT.glob("benchmarks/*.py")]
    assert [name for name in files if f"`python benchmarks/{name}" not in page] == []


def test_every_decision_is_listed() -> None:
    directory = ROOT / "docs" / "decisions"
    page = (directory / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in directory.glob("*.md")} - {"README.md"}
    assert [name for name in pages if f"]({name})" not in page] == []


def test_no_module_imports_itself_through_others() -> None:
    assert house.cycles(house.imports(house.trees_of(ROOT))) == []


def test_no_module_of_the_core_uses_itself_through_others() -> None:
    texts = house.rust_texts_of(ROOT)
    graph = house.rust_imports(texts)
    assert graph["exchanges::stage"] >= {"exchanges::connection", "net::packet"}
    assert house.cycles(graph) == []


def test_types_of_the_core_have_a_name_of_their_own() -> None:
    types = house.rust_types(house.rust_texts_of(ROOT))
    assert {"Connection", "Fields", "PyRow", "TopicNames"} <= types.keys()
    assert [name for name, count in types.items() if count > 1] == []


def test_the_core_knows_python_in_one_place() -> None:
    """Nine modules of ``sinks`` named it too. All but ``lib.rs`` compiles without it."""
    texts = house.rust_texts_of(ROOT)
    names_python = {name for name, text in texts.items() if re.search(r"\bpyo3\b|\bPy<|\bPython<", text)}
    assert len(names_python) > 10
    assert [name for name in names_python if not re.match(r"python\b", name)] == []
    users = {name for name, text in texts.items() if re.search(r"\bcrate::python\b|\bmod python\b", text)}
    assert {name for name in users if not re.match(r"python\b", name)} == {"lib"}
    features = {name for name, text in texts.items() if 'feature = "python"' in text}
    assert features == {"lib"}


def test_python_knows_the_core_in_one_place() -> None:
    importers = {
        name
        for name, text in house.texts_of(ROOT).items()
        if re.search(r"\bimport kdissect\._core\b|import _core\b|kdissect\._core\b\"", text)
    }
    assert importers == {"kdissect.core"}


def test_python_that_the_core_names_exists() -> None:
    broken = [
        f"{name_of(path)}: {target}"
        for path in ROOT.glob("core/src/**/*.rs")
        for target in re.findall(r"\bkdissect/[\w/]+\.py\b", path.read_text(encoding="utf-8"))
        if not (ROOT / target).exists()
    ]
    assert broken == []


def test_every_room_is_on_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in ROOT.glob("kdissect/*/__init__.py")}
    assert [room for room in rooms if f"`{room}/`" not in page] == []


# --- doors --------------------------------------------------------------------------------------------------


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Module -> all nodes of its syntax tree."""
    return {name: house.nodes_of(tree) for name, tree in house.trees_of(ROOT).items()}


def places(kind: type[ast.AST], matches: Callable[[Any], bool]) -> set[str]:
    """The modules with such a node."""
    return {
        module
        for module, all_nodes in nodes().items()
        if any(isinstance(node, kind) and matches(node) for node in all_nodes)
    }


def calls(name: str) -> set[str]:
    return places(ast.Call, lambda node: isinstance(node.func, ast.Name) and node.func.id == name)


def reads(attribute: str) -> set[str]:
    return places(ast.Attribute, lambda node: node.attr == attribute)


def classes(matches: Callable[[ast.ClassDef], bool], packages: str = "") -> set[str]:
    return {
        node.name
        for module, all_nodes in nodes().items()
        for node in all_nodes
        if re.match(packages, module) and isinstance(node, ast.ClassDef) and matches(node)
    }


def test_there_is_one_door_of_each_kind() -> None:
    doors = house.doors(ROOT)
    assert [door.now for door in doors] == [1, 1, 1, 1, 1, 0, 0]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [door for door in doors if f"| {door.name} | {door.before} | {door.now} |" not in page] == []


def test_only_sinks_decide_what_the_core_may_do() -> None:
    """Nine places did: each sink does now, in its own file, by what ``Demand`` says."""
    sinks = {f"kdissect.sinks.{name}" for name in ("lines", "rows", "columns", "records", "tallies")}
    assert calls("Plan") == sinks
    assert reads("allows_core") == sinks
    assert calls("Demand") <= {"kdissect.sinks.sink", "kdissect.runs.run"}


def test_one_way_leads_from_the_pipeline_to_an_output() -> None:
    """Six methods of ``Dissection`` did."""
    assert calls("Finishing") == {"kdissect.pipeline"}
    old = (
        "write_lines",
        "write_shard_lines",
        "describe_undecoded",
        "in_order_with_pauses",
        "settle",
        "count",
    )
    (dissection,) = (
        node
        for node in nodes()["kdissect.pipeline"]
        if isinstance(node, ast.ClassDef) and node.name == "Dissection"
    )
    methods = {node.name for node in dissection.body if isinstance(node, ast.FunctionDef)}
    assert methods.isdisjoint(old)
    assert "into" in methods


def test_the_core_gets_one_plan_and_has_one_trait() -> None:
    """There were five forms in which an exchange left the core, and each method of a page had a switch over
    writers. What the core must know of one stands in one file, and one place makes its sinks.
    """
    plans = places(
        ast.ClassDef, lambda node: re.fullmatch(r"\w+(Plan|Form)|Plan|Conditions", node.name) is not None
    )
    assert {
        each for each in plans if each.startswith(("kdissect.sinks", "kdissect.text", "kdissect.tables"))
    } == {"kdissect.sinks.plan"}
    stub = (ROOT / "kdissect" / "_core.pyi").read_text(encoding="utf-8")
    assert re.findall(r"plan: (\w+)", stub) == ["CorePlan"]
    texts = house.rust_texts_of(ROOT)
    sinks = {
        (name, sink) for name, text in texts.items() for sink in re.findall(r"impl Sink for (\w+)", text)
    }
    assert sinks == {
        ("sinks::lines", "Lines"),
        ("sinks::records::sink", "RecordWriter"),
        ("sinks::rows", "Rows"),
        ("sinks::tallies", "Tallies"),
    }
    makers = {name for name, text in texts.items() if re.search(r"Box::new\((Lines|Rows|Tallies)::new", text)}
    assert makers == {"python::plan"}


def test_one_run_has_three_places() -> None:
    """There were four runs and three main functions of workers."""
    assert classes(lambda node: node.name.endswith("Run"), r"kdissect\.(cli|runs|spark)\b") == {"Run"}
    places = classes(
        lambda node: (
            {"totals", "into"} <= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        )
    )
    assert places == {"RunPlace", "Run", "Here", "Workers", "Tasks"}
    mains = [
        node.name
        for node in house.trees_of(ROOT)["kdissect.runs.workers"].body
        if isinstance(node, ast.FunctionDef)
    ]
    assert [name for name in mains if name.startswith("work")] == ["work", "work_to_end"]


# --- README -------------------------------------------------------------------------------------------------


def test_the_state_of_a_connection_crosses_as_one() -> None:
    """Five protocols did, with tuples of up to ten places. Now each part is a class with named fields in both
    languages, and of one whole: what packets leave behind. What exchanges leave behind is of another time.
    """
    states = {
        node.name: {each for field in node.body for each in names_in(field)}
        for all_nodes in nodes().values()
        for node in all_nodes
        if isinstance(node, ast.ClassDef)
        and re.fullmatch(r"[A-Z]\w+State", node.name)
        and is_named_tuple(node)
    }
    parts = {part for name, fields in states.items() for part in fields & states.keys() - {name}}
    assert states.keys() - parts == {"ConnectionState", "MemoryState"}
    assert len(parts) >= 5

    texts = house.rust_texts_of(ROOT)
    crossing = set(re.findall(r'^    "[\w.]+": (\w+)', texts["python::state"], re.MULTILINE))
    assert states.keys() <= crossing
    for name, text in texts.items():
        if name != "python::state":
            assert not re.search(r"derive\([^)]*IntoPyObject", text), name
    stub = (ROOT / "kdissect" / "_core.pyi").read_text(encoding="utf-8")
    assert "TypedDict" not in stub
    assert set(re.findall(r"def (\w+)\([^)]*\) -> [^:]*ConnectionState|state: ConnectionState", stub)) >= {
        "ended",
        "recall",
    }


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_named_tuple(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)


def test_readme_shows_first_what_kdissect_prints() -> None:
    """Its rows are those of a terminal: a shorter time and fewer columns than in a pipe, but the same
    words."""
    head = "\n".join(_readme().splitlines()[:README_SHOWS_WITHIN]) + "\n"
    shown = re.search(r"^```\w*\n\$ kdissect (.+)\n([\s\S]+?)^```$", head, re.MULTILINE)
    assert shown, f"no fenced block with '$ kdissect ...' ends within {README_SHOWS_WITHIN} lines"
    printed = [" ".join(line.split()) for line in _kdissect(shown[1].split()).splitlines()]
    rows = [line.split(maxsplit=1) for line in shown[2].splitlines() if line[:1].isdigit()]
    assert rows
    for time, text in rows:
        words = " " + " ".join(text.split())
        assert any(time in line and line.endswith(words) for line in printed), f"not printed: {time}{words}"


def test_readme_has_one_command_to_read_a_sample_and_one_to_test() -> None:
    blocks = re.findall(r"^```\w*\n([\s\S]+?)^```$", _readme(), re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert re.search(r"&& \.venv/bin/kdissect read samples/\S+$", commands[0])
    assert re.search(r"&& \.venv/bin/python -m pytest\b", commands[1])


def test_readme_example_in_python_is_short_and_works() -> None:
    example = re.search(r"^```python\n([\s\S]+?)^```$", _readme(), re.MULTILINE)
    assert example, "no Python example"
    assert len(example[1].splitlines()) <= 5
    assert _run([sys.executable, "-c", example[1]])


def _readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def _kdissect(arguments: list[str]) -> str:
    return _run([sys.executable, "-m", "kdissect", *arguments])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
        env=_plain_environment(),
    )
    return done.stdout


def _plain_environment() -> dict[str, str]:
    """What README is written for: no terminal, times in UTC, text in UTF-8."""
    return {**os.environ, "TZ": "UTC", "PYTHONUTF8": "1", "NO_COLOR": "1"}
