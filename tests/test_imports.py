"""What starting kdissect may load: people wait for ``--help``, scripts import the package for a function."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from kdissect.cli.main import COMMANDS
from samples.golden import ROOT

IMPORT = "import kdissect"
PIPELINE = "from kdissect import open_capture, dissect"
HELP = "from kdissect.cli.main import main; main(['--help'])"
VERSION = "from kdissect.cli.main import main; main(['--version'])"

# Whatever else comes to use these, none is needed before the user runs live capture, Spark, Parquet or
# --where with a regular expression.
HEAVY = {"scapy", "pyspark", "pyarrow", "pandas", "numpy", "rich", "re2", "confluent_kafka"}

# What --help and --version have no use for: rooms where bytes are worked on, and what commands are made of.
ROOMS = ("capture", "exchanges", "kafka", "net", "query", "spark", "stats", "tables", "text", "pipeline")
WORK = tuple(f"kdissect.{name}" for name in (*ROOMS, *(f"cli.{command}" for command in COMMANDS)))
# But an error message may have text of somebody else in it, and goes through kdissect.phrases.
SAFE_TEXT = {"kdissect.phrases", "kdissect.cli.help", "kdissect.cli.config_file"}

_LIST_MODULES = "\nimport json, sys\nsys.stderr.write(json.dumps(sorted(sys.modules)))"


def modules_after(code: str) -> set[str]:
    """What a new interpreter has loaded after ``code`` and had not before."""
    return _modules(code) - _modules("")


def _modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code + _LIST_MODULES], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stderr))


def _packages(modules: set[str]) -> set[str]:
    """Names of other people's packages."""
    tops = {name.partition(".")[0] for name in modules}
    return {name for name in tops if name not in sys.stdlib_module_names and name != "kdissect"}


@pytest.mark.parametrize("code", [IMPORT, PIPELINE, HELP, VERSION])
def test_starting_loads_nothing_heavy(code: str) -> None:
    assert _packages(modules_after(code)) & HEAVY == set()


def test_the_package_alone_loads_nothing() -> None:
    assert {name for name in modules_after(IMPORT) if name.startswith("kdissect")} == {"kdissect"}


def test_dissecting_does_not_load_the_command_line() -> None:
    modules = modules_after(PIPELINE)
    assert "click" not in modules
    assert "kdissect.cli" not in modules


@pytest.mark.parametrize("command", ["read", "records"])
def test_what_opens_records_is_not_loaded_before_there_are_any(command: str) -> None:
    modules = modules_after(f"from kdissect.cli.main import main; main(['{command}', '--help'])")
    assert not modules & {"kdissect.kafka.batches", "crc32c"}


def test_exchanges_need_no_rows_of_a_summary_no_openssl_and_no_metadata_of_packages() -> None:
    modules = modules_after("from kdissect.cli.main import main; main(['read', 'samples/quickstart.pcap'])")
    assert "kdissect.text.table" in modules
    assert not modules & {"kdissect.stats.document", "_hashlib", "importlib.metadata"}


@pytest.mark.parametrize("command", ["read", "records", "summary"])
def test_what_several_processes_need_is_not_loaded_for_one(command: str) -> None:
    modules = modules_after(f"from kdissect.cli.main import main; main(['{command}', '--help'])")
    assert not modules & {"multiprocessing", "kdissect.runs.workers"}


@pytest.mark.parametrize("code", [HELP, VERSION])
def test_help_and_version_load_no_codec_and_no_command(code: str) -> None:
    modules = modules_after(code)
    assert {name for name in modules if name.startswith(WORK)} <= SAFE_TEXT
    assert _packages(modules) == {"click"}


def test_tests_outside_spark_need_no_pyspark() -> None:
    texts = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    helpers = [path.stem for path, text in texts.items() if "spark" in text and path.parent.name == "tests"]
    near = re.compile(
        rf"spark|\b({'|'.join(helpers)})\b"
    )  # to import pyspark by whatever way, its name is needed
    files = [
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if path.stem.startswith("test_")
        and "spark" not in path.relative_to(ROOT / "tests").parts[:1]
        and near.search(text)
    ]
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)]
    code = f"import sys, pytest; sys.modules['pyspark'] = None; sys.exit(pytest.main({options}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
