"""A hook of mkdocs: pages that are outside docs/ become part of the site, and links between pages lead there;
so do reports of samples: of some, or of all with KDISSECT_REPORTS=all, 1 MB each.

A link to a file that is not on the site, such as source code, becomes its text.
"""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from kdissect.cli.main import main

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "benchmarks.md": "benchmarks/README.md",
}
"""Pages of the site by their sources."""
REPORTS = {
    "kafka-4-storm.pcap.gz": "a group that rebalances",
    "kafka-4-lag.pcap.gz": "a consumer that lags",
    "kafka-4-fenced.pcap.gz": "producers that fence each other",
}
"""Samples that always have a report on the site, and what it shows."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    lines = ["# Examples of reports", "", "`kdissect report` of captures in `samples/`:", ""]
    others = sorted({path.name for path in (ROOT / "samples").glob("*.pcap*")} - {*REPORTS})
    for sample in (*REPORTS, *(others if os.environ.get("KDISSECT_REPORTS") == "all" else ())):
        name = sample.partition(".pcap")[0]
        files.append(File.generated(config, f"reports/{name}.html", content=_report(sample)))
        lines.append(
            f"* [{name}](reports/{name}.html)" + (f": {REPORTS[sample]}" if sample in REPORTS else "")
        )
    files.append(File.generated(config, "reports.md", content="\n".join(lines)))
    return files


def _report(sample: str) -> str:
    """The page of a sample, named without the directories of this machine."""
    with TemporaryDirectory() as directory, chdir(ROOT / "samples"):
        page = Path(directory) / "report.html"
        if status := main(["report", "--no-progress", "-o", str(page), sample]):
            raise PluginError(f"kdissect report {sample} ended with status {status}")
        return page.read_text(encoding="utf-8")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Adapt the links of a page."""
    uri = page.file.src_uri
    sources = {source: each for each, source in PAGES.items()}
    directory = posixpath.dirname(PAGES.get(uri, f"docs/{uri}"))

    def adapted(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups(default="")
        source = posixpath.normpath(posixpath.join(directory, target))
        there = sources.get(source, source.removeprefix("docs/") if source.startswith("docs/") else None)
        on_site = None if there is None else files.get_file_from_path(there)
        if (on_site is None or on_site.inclusion.is_excluded()) and (ROOT / source).exists():
            return text
        there = posixpath.relpath(there or target, posixpath.dirname(uri) or ".")
        return f"{image}[{text}]({there}{anchor})"

    return _LINK.sub(adapted, markdown)
