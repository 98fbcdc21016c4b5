"""``kdissect records``: what was produced and fetched, record by record, as lines or JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.options import filter_options, input_options, to_exchange_id
from kdissect.cli.running import Asked, running
from kdissect.cli.terminal import warn, width
from kdissect.sinks import columns
from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.phrases import many
from kdissect.sinks.recordtable import RecordTable
from kdissect.sinks.times import FORMATS, Times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.analysis.recordfilters import RecordFilter
    from kdissect.model import Exchange

EXAMPLES = """\b
Examples:
  kdissect records capture.pcap
  kdissect records --topic orders --partition 3 --offset 1000..1999 capture.pcap
  kdissect records --produced --key 'customer-7*' --header trace-id=4bf92f capture.pcap
  kdissect records --control --api Fetch capture.pcap
  kdissect records --json --unique capture.pcap | jq -r .value
  kdissect records --topic __consumer_offsets capture.pcap

The line of a record has the time of its request, api, partition, offset, key and value; "-" stands for null
and for an offset that no response told.
"""

_TIMES = "; ".join(f"{name}: {text}" for name, text in FORMATS.items())


@click.command(epilog=EXAMPLES)
@input_options
@filter_options
@click.option(
    "--exchange",
    "exchanges",
    multiple=True,
    type=to_exchange_id,
    metavar="CONNECTION/NUMBER",
    help="What this exchange alone carried.",
)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key, or a pattern: 'customer-*'.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Has a header of this name, and of this value; both can be patterns.",
)
@click.option(
    "--offset", "offsets", multiple=True, metavar="A..B", help="5, 5..9, 5.. or ..9; both ends are inside."
)
@click.option(
    "--control/--no-control",
    default=None,
    help="Only, or none of, the marks of transactions and of KRaft.",
)
@click.option("--produced", is_flag=True, help="Only what clients sent.")
@click.option("--fetched", is_flag=True, help="Only what brokers sent, to clients or to each other.")
@click.option(
    "--unique", is_flag=True, help="Show the first only of those with the same topic, partition and offset."
)
@click.option("-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after N records were shown.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line; docs/columns.md tells the keys."
)
@click.option(
    "-t",
    "times",
    type=click.Choice(list(FORMATS)),
    metavar="FORMAT",
    help=f"How times are written. {_TIMES}.",
)
@click.option(
    "-l", "flush", is_flag=True, help="Write each record at once, for a pipe that somebody watches."
)
def records(count: int | None, as_json: bool, times: str | None, flush: bool, **options: Any) -> None:
    """Show the records that were produced and fetched.

    Batches are decompressed, and their checksums compared. Records of Kafka's own topics are decoded,
    credentials in them withheld. The filters for exchanges say which requests and responses are looked into.
    """
    from kdissect.analysis.recordfilters import RecordFilter, Wanted

    asked = Asked.take(options)
    topics, partitions = asked.criteria["topic"], asked.criteria["partition"]
    found = _Records(
        RecordFilter(Wanted(topics=topics, partitions=partitions, **options)), show_secrets=asked.show_secrets
    )
    with running(asked, bar=lambda out: not out.isatty()) as run:
        sink: JsonLines | RecordTable
        if as_json:
            sink = JsonLines(run.out.buffer.write, columns=columns.RECORD, flush_each=flush)
        else:
            columns_of_terminal = width(run.out)
            usual = "ud" if columns_of_terminal is None else "u"
            how = Times(times or usual, first_ns=run.first_ns)
            sink = RecordTable(run.out, how, width=columns_of_terminal)
        run.show(found.of(run.selected()), sink.feed, count, flush=flush)
        sink.close()
    run.tell(found.exchanges)
    _tell(found, run.shown, complete=run.complete)
    run.end("record")


class _Records:
    """The records that are wanted. Counts the exchanges that were looked into, and what was wrong there."""

    def __init__(self, are_meant: RecordFilter, *, show_secrets: bool) -> None:
        self.exchanges = 0
        self.anomalies: Counter[str] = Counter()
        self._are_meant = are_meant
        self._show_secrets = show_secrets

    def of(self, exchanges: Iterable[Exchange]) -> Iterator[CarriedRecord]:
        """Yield them in the order of their exchanges."""
        from kdissect.analysis.carried import carried, open_carried

        are_meant = self._are_meant
        for exchange in exchanges:
            self.exchanges += 1
            for each in carried(exchange):
                if not are_meant.matches_partition(each):
                    continue
                for batch, opened in open_carried(each, show_secrets=self._show_secrets):
                    self.anomalies.update(anomaly.kind for anomaly in batch.anomalies)
                    yield from filter(are_meant.matches, opened)


def _tell(found: _Records, shown: int, *, complete: bool) -> None:
    """Say what was wrong with batches, and that there was nothing to show."""
    if found.anomalies:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.anomalies.most_common())
        warn(f"wrong or odd in record batches: {kinds}")
    if complete and found.exchanges and not shown:
        warn(f"no such record in {many(found.exchanges, 'exchange')}")
