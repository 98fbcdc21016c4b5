"""``live --export DIR``: what comes live -> typed tables whose files appear while more is captured.

    with exporting(tables, asked, captures) as export:    the folder is ours
        ...
        with export.writing(run) as made:                 something is captured
            ...

A restart into the same folder adds files to those of the runs before. Holds what an export holds.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kdissect.analysis.connectionlog import ConnectionLog
from kdissect.cli.options import to_local, together
from kdissect.cli.tables import LIVE_ROTATED_NS, Tables, filling, records_of, table_options, tell
from kdissect.cli.terminal import warn
from kdissect.cli.whole import Whole
from kdissect.sinks import manifest
from kdissect.sinks.export import Export
from kdissect.sinks.folderlock import locked
from kdissect.sinks.phrases import many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.cli.listening import LiveRun
    from kdissect.cli.running import Asked
    from kdissect.sinks.manifest import Earlier


export_options = together(
    click.option(
        "--export",
        "export",
        type=click.Path(),
        callback=to_local,
        metavar="DIR",
        help="Write typed tables for Spark, DuckDB, pandas, polars, as kdissect export does; files appear in "
        "DIR as they are complete. Exchanges are not shown then, unless -P, -V, --json or --csv say so. An "
        "export of before goes on.",
    ),
    table_options("With --export: ", "256MB and 5min"),
)
"""What to write tables of, and how."""

_NEEDS_FOLDER = {
    "form": "--format",
    "compression": "--compress",
    "tables": "--tables",
    "bodies": "--bodies",
    "rotate": "--rotate",
    "partition_by": "--partition-by",
}
_SHOWING = ("lines", "tree", "show_bytes", "as_json", "as_csv", "quiet")


def take_tables(options: dict[str, Any]) -> Tables | None:
    """Take what ``export_options`` were given out of a command's options. With tables, ``--records`` is about
    these, unless exchanges are shown too.

    Raises:
        UsageError: an option goes with --export, which was not given.
    """
    folder = options.pop("export")
    if folder is None:
        for name, flag in _NEEDS_FOLDER.items():
            if options.pop(name):
                raise click.UsageError(f"{flag} goes with --export DIR")
        return None
    with_records, is_shown = options["with_records"], any(options[name] for name in _SHOWING)
    tables = Tables.take(options | {"folder": folder}, LIVE_ROTATED_NS)
    for name in _NEEDS_FOLDER:
        del options[name]
    options["with_records"] = with_records and is_shown
    options["lines"] = is_shown
    return tables


@contextmanager
def exporting(tables: Tables | None, asked: Asked, captures: Sequence[str]) -> Iterator[LiveExport | None]:
    """Have a folder for oneself, and see what is in it; None: nothing is to be exported.

    Raises:
        OutputError: it is somebody else's, or more cannot be added to what it has.
    """
    if tables is None:
        yield None
        return
    export = LiveExport(tables, asked, captures)
    with locked(tables.folder, tables.mode):
        export.look()
        yield export


class LiveExport:
    """Tables of what comes live.

    Attributes:
        log: surveys the run.
        whole: lets a second Ctrl-C wait until rows that belong together are written together.
    """

    def __init__(self, tables: Tables, asked: Asked, captures: Sequence[str]) -> None:
        self.log = ConnectionLog(asked.limits)
        self.whole = Whole()
        self._tables, self._asked = tables, asked
        self._records = records_of(asked)
        self._form = tables.format(asked.limits)
        self._files = {name: tables.files(name, self._form, asked.limits) for name in tables.wanted}
        live = [{"path": name, "bytes": None, "modified": None} for name in captures]
        self._job = tables.job(live, asked.limits)
        self._earlier: Earlier | None = None
        self._made: Export | None = None

    def look(self) -> None:
        """See what runs before have left, go on behind it, and say so.

        Raises:
            OutputError: more cannot be added to it.
        """
        folder = self._tables.folder
        self._earlier = manifest.going_on(folder, self._files, self._form, self._asked.limits)
        if self._earlier.files:
            warn(f"{folder} has {many(self._earlier.files, 'file')} of earlier runs; more are added")
        if self._earlier.removed:
            unfinished = many(self._earlier.removed, "unfinished file")
            warn(f"{unfinished} in {folder} removed, of a run that was killed")

    @contextmanager
    def writing(self, run: LiveRun) -> Iterator[Export]:
        """Rows are written meanwhile, and files appear; at the end the rest of them.

        Raises:
            OutputError: something cannot be written.
        """
        assert self._earlier is not None
        made = self._made = Export(
            self._tables.folder,
            self._files,
            self._form,
            self._job,
            self.log,
            self._records,
            self._asked.limits,
            every_connection=not self._tables.filtered,
            rotate_ns=self._tables.rotation.duration_ns,
            earlier=self._earlier.runs,
        )
        run.losses.also.append(self.whole(made.tick))
        run.ongoing.left = self.whole(made.leave)
        with filling(made, run, self.log):
            yield made
            run.close()  # which counts what was dropped last

    def tell(self) -> None:
        """Say on stderr what was written."""
        assert self._made is not None
        tell(self._made, self._records, self._tables.folder)
