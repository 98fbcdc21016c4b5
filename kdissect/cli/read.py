"""``kdissect read``: exchanges of a capture as lines, trees, JSON or CSV."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kdissect import core
from kdissect.capture.reader import has_secrets
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, processes
from kdissect.cli.options import (
    at_least,
    exchange_option,
    filter_options,
    input_options,
    mode_option,
    names_option,
    preference_option,
    to_local,
)
from kdissect.cli.output_options import ExchangeOutput, output_options
from kdissect.cli.run import end, open_run, report, take_query
from kdissect.exchanges.ordering import ByRequest
from kdissect.files import PRIVATE
from kdissect.options import WHOLE, WINDOW

if TYPE_CHECKING:
    from kdissect.model import Exchange

COMPLETION, TIME = "completion", "time"

EXAMPLES = """\b
Examples:
  kdissect read capture.pcap
  kdissect read -V --exchange 1f0c9a2be4d7/12 capture.pcap
  kdissect read -V --records --api Fetch -c 1 capture.pcap
  kdissect read --api Fetch --topic 'orders-*' --slower-than 50ms *.pcapng.gz
  kdissect read --error '*' -t ad capture.pcap
  kdissect read --where 'api == "Fetch" and latency_us > 50000' capture.pcap
  kdissect read --where '"NOT_LEADER_OR_FOLLOWER" in errors' capture.pcap
  kdissect read --where 'client_id =~ "(?i)^orders-[0-9]+$"' capture.pcap
  kdissect read --where 'request.topics.partitions.fetch_offset > 5' capture.pcap
  kdissect read --json capture.pcap | jq .latency_us
  kdissect read --error '*' -w failed.pcapng capture.pcap
  tcpdump -i eth0 -U -w - port 9092 | kdissect read -l -

Each line shows one exchange (a request and its response): time, client, broker, client ID, API and version,
latency, a summary of its content, errors in the response, and anomalies after "!". Instead of a latency:
"no response"; "pending" (still waiting when the capture ended); "incomplete" (the request did not end);
"acks=0" (none expected); "orphan" (a response without a request). On a narrow terminal, or with COLUMNS set,
some columns are hidden; --wide shows all.
"""


@command(epilog=EXAMPLES)
@input_options
@preference_option
@names_option(f"{WINDOW}; {WHOLE} for files if a filter names a topic")
@filter_options
@exchange_option("Show only this exchange.")
@click.option("-c", "--count", type=at_least(1), metavar="N", help="Stop after showing N exchanges.")
@output_options
@click.option(
    "-w",
    "target",
    callback=to_local,
    metavar="FILE",
    help="Write a pcapng file with the packets of connections that have a matching exchange. An existing "
    "file is replaced; - is stdout. Input from a pipe is buffered in a temporary file. Connections "
    "that carry, or may carry, credentials are omitted without --show-secrets; inside TLS, they are omitted "
    "only with --with-keys or --decrypted.",
)
@click.option(
    "--with-keys",
    is_flag=True,
    help="With -w, also write the TLS secrets of these connections: Wireshark and kdissect can then decrypt "
    "the file.",
)
@click.option(
    "--decrypted",
    is_flag=True,
    help="With -w, write these connections decrypted, as new packets.",
)
@click.option(
    "--comments",
    "with_comments",
    is_flag=True,
    help="With -w, add a comment to the packet that completes an exchange: what its line says, and findings "
    "that name it (not with a pipe). Wireshark and tshark filter by it: frame.comment contains NOT_LEADER.",
)
@mode_option
@click.option(
    "--check-crcs",
    is_flag=True,
    help=(
        "Verify the checksums of all record batches without decoding them; kdissect records always does this."
    ),
)
@click.option(
    "--order",
    type=click.Choice([COMPLETION, TIME]),
    default=COMPLETION,
    show_default=True,
    help="completion: as responses arrive; time: as requests were sent. With time, a row waits at most 1 s "
    "for earlier requests; one that comes too late for its place is marked late.",
)
@jobs_option(
    "Also 1 by default with --tls-keylog and the native core. Always 1 for -w, -q, -t d, -t dd, --order "
    "time, and stdin.",
    is_native=True,
)
@click.option("-l", "flush", is_flag=True, help="Flush after each exchange (line-buffered), as in tshark -l.")
def read(
    count: int | None,
    target: str | None,
    with_keys: bool,
    decrypted: bool,
    with_comments: bool,
    mode: int | None,
    check_crcs: bool,
    order: str,
    flush: bool,
    jobs: int | None,
    **options: Any,
) -> None:
    """Show the exchanges (requests and their responses) in a capture.

    FILE is a pcap or pcapng file (plain, or compressed with gzip, zstd or lz4), a directory of such files, or
    a quoted glob. Any of these can be a URL, such as s3://bucket/x.pcap; - is stdin. Several files are merged
    by time. Kafka is recognized on any port. "!" on a line marks an anomaly.
    """
    query = take_query(options, names=WINDOW)
    output = ExchangeOutput.take(options, {"-w": target is not None})
    query = query.with_fields(output.fields)
    if not (output.as_json or output.as_csv or output.as_log or output.fields):
        query = query.without_latency_parts()
    if target is not None:
        from kdissect.cli.pcapng_output import AS_CAPTURED, DECRYPTED, WITH_KEYS, write

        if with_keys and decrypted:
            raise click.UsageError("use either --with-keys or --decrypted")
        if (with_keys or decrypted) and not (query.options.key_logs or any(map(has_secrets, query.paths))):
            raise click.UsageError("--with-keys and --decrypted need a key log (--tls-keylog)")
        if with_comments and decrypted:
            raise click.UsageError("use either --comments or --decrypted, which writes new packets")
        of_tls = WITH_KEYS if with_keys else DECRYPTED if decrypted else AS_CAPTURED
        write(query, target, mode or PRIVATE, count, of_tls, with_comments=with_comments)
        return
    if with_keys or decrypted:
        raise click.UsageError("--with-keys and --decrypted need -w FILE")
    if mode is not None or with_comments:
        raise click.UsageError(f"{'--comments' if with_comments else '--mode'} needs -w FILE")
    if order == TIME and not query.are_files:
        raise click.UsageError("--order time needs files")
    if order == TIME and output.times == "d" and not query.filter.is_empty:
        raise click.UsageError(
            "-t d with filters needs --order completion; -t dd counts from exchanges shown"
        )
    can_run_in_parallel = order != TIME and output.can_run_in_parallel(sys.stdout)
    is_fast = query.options.key_logs and core.is_used  # and several would read the files twice
    is_single = bool(count or flush or is_fast)
    has_bodies = (
        output.tree or output.show_bytes or output.as_log or check_crcs or not query.demand().is_known
    )
    jobs = processes(
        query, jobs, by_default=not is_single, allowed=can_run_in_parallel, is_native=not has_bodies
    )
    with open_run(query, bar=output.quiet, jobs=jobs) as run:
        times = output.time_formatter(run.out, run.first_ns)
        by_request = order == TIME
        if by_request:
            run.dissection.watch_requests(ByRequest(query.limits))
        sink = output.sink(
            run.page,
            times,
            query,
            run.demand(one_by_one=by_request or flush),
            flush=flush and jobs == 1,
            by_request=by_request,
            check=_check if check_crcs else None,
        )
        run.into(sink, count, flush=flush)
    report(run, run.shown)
    output.report_hidden(run)
    end(run, "exchange")


def _check(exchange: Exchange) -> None:
    """Add wrong checksums to the anomalies of an exchange."""
    from kdissect.exchanges.partition_records import crc_anomalies  # imports every codec

    exchange.anomalies += crc_anomalies(exchange)
