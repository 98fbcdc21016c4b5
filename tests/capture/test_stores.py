"""Files in an object store are read as those on a disk are. The store is S3, served by moto."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import sys
from collections import Counter
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import zstandard

from kdissect.capture import stores
from kdissect.capture.inputs import captures, output_directory
from kdissect.capture.reader import open_capture
from kdissect.cli.terminal import FAILED, OK, USAGE
from kdissect.errors import CaptureError, UsageError
from kdissect.extras import install
from kdissect.limits import DEFAULT
from samples.golden import ROOT
from tests.cli.commands import capture_bytes, run, spawn, talk
from tests.cli.test_tls import pcapng_with_secrets
from tests.depth import IS_DEEP
from tests.rings import packets_of, pieces
from tests.stores import (
    BUCKET,
    SECRET,
    Bucket,
    Troubles,
    azurite,
    environment,
    gcs_emulator,
    mini_hdfs,
    proxy,
    s3_server,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

SAMPLES = {name: ROOT / "samples" / name for name in ("kafka-4-basics.pcap", "kafka-4-quota.pcap.gz")}
SAMPLE = SAMPLES["kafka-4-basics.pcap"]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Any]]:
    with s3_server() as served:
        yield served


@pytest.fixture
def bucket(server: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty directory of a bucket, which the environment makes reachable."""
    use(server[0], monkeypatch)
    yield Bucket(*server, f"s3://{BUCKET}/{uuid4().hex}")
    stores._client.cache_clear()


def use(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    stores._client.cache_clear()


# --- what commands show


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "command", ["read -V", "records", "summary --json", "check --json", "read --names whole"]
)
def test_commands_show_the_same(
    command: str, name: str, bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = bucket.put(name, SAMPLES[name].read_bytes())
    expected = run(capsys, *command.split(), str(SAMPLES[name]))
    done = run(capsys, *command.split(), url.replace("s3://", "s3a://"))
    assert done.status == expected.status
    for out, expected_out in ((done.out, expected.out), (done.err, expected.err)):
        assert out == expected_out.replace(str(SAMPLES[name]), url)
    assert done.out


def test_exports_have_the_same_rows(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = bucket.put(SAMPLE.name, SAMPLE.read_bytes())
    for name, directory in ((url, "store"), (str(SAMPLE), "disk")):
        assert run(capsys, "export", "--rotate", "1GB", name, "-o", str(tmp_path / directory)).status == OK
    files = [path.relative_to(tmp_path / "disk") for path in (tmp_path / "disk").glob("*/*.jsonl")]
    assert len(files) > 5
    for file in files:
        expected = (tmp_path / "disk" / file).read_text().replace(str(SAMPLE), url)
        assert (tmp_path / "store" / file).read_text() == expected
    again = run(capsys, "export", "--rotate", "1GB", url, "-o", str(tmp_path / "store"))
    assert "already" in again.err
    bucket.put(SAMPLE.name, SAMPLES["kafka-4-quota.pcap.gz"].read_bytes())
    replaced = run(capsys, "export", "--rotate", "1GB", url, "-o", str(tmp_path / "store"))
    assert f"{url} has changed since it was exported; --redo exports it again" in replaced.err


@pytest.mark.parametrize(
    "options", [("-j", "1"), ("-j", "2", "--partition-by", "date", "--format", "parquet")]
)
def test_tables_are_written_to_a_store(
    options: tuple[str, ...], bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory = f"{bucket.url}/tables"
    done = run(capsys, "export", *options, str(SAMPLE), "-o", directory)
    expected = run(capsys, "export", *options, str(SAMPLE), "-o", str(tmp_path))
    assert (done.status, expected.status) == (OK, OK)
    assert f"written to {directory}; rows: {rows_in(expected.err)}" in done.err
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    written = {
        re.sub(r"(part-\d+)-[0-9a-f]{8}\.", r"\1.", path.removeprefix(f"{directory}/")): path
        for path, known in stores.listing(directory).items()
        if known.size
    }
    assert written.keys() == names
    for name in names:
        if "manifest" in name:
            assert json.loads(stores.StorePath(written[name]).read_text())["complete"]
        elif name.endswith("create_table.sql"):
            assert directory.replace("s3:", "s3a:") in stores.StorePath(written[name]).read_text()
        else:
            with stores.open_file(written[name]) as file:
                assert file.read(1 << 30) == (tmp_path / name).read_bytes(), name
    assert "already" in run(capsys, "export", *options, str(SAMPLE), "-o", directory).err
    other = ("export", str(SAMPLES["kafka-4-quota.pcap.gz"]), "-o", directory.replace("s3:", "s3a:"))
    other = (*other, "--bodies", "none")
    assert "made from other captures" in run(capsys, *other).err
    assert run(capsys, *other, "--tables", "groups", "--overwrite").status == OK
    left = {
        path.removeprefix(f"{directory}/").split("/")[0]
        for path, known in stores.listing(directory).items()
        if known.size
    }
    assert left == {"groups"}


def test_a_store_that_refuses_tables(
    server: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(server[0], monkeypatch)
    done = run(capsys, "export", str(SAMPLE), "-o", "s3://no-such-bucket/tables")
    assert done.status == FAILED
    assert done.err.startswith("kdissect: cannot write s3://no-such-bucket/tables")
    assert done.err.count("\n") == 1
    assert SECRET not in done.err


def test_a_store_that_takes_no_files(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with proxy(bucket.endpoint, Troubles()) as endpoint:  # which passes on only what reads
        use(endpoint, monkeypatch)
        done = run(capsys, "export", str(SAMPLE), "-o", f"{bucket.url}/tables")
    assert done.status == FAILED
    assert done.err.startswith(f"kdissect: cannot write {bucket.url}/tables/")
    assert done.err.count("\n") == 1
    use(bucket.endpoint, monkeypatch)
    assert stores.listing(bucket.url) == {}


def test_an_export_that_fails_leaves_no_files_and_an_incomplete_manifest(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = stores.StorePath.send

    def failing(self: stores.StorePath, file: Any) -> None:
        if "/exchanges/part-" in str(self):
            send(self, io.BytesIO(b"the beginning"))
            self.unlink()
            raise OSError(5, "connection reset")
        send(self, file)

    monkeypatch.setattr(stores.StorePath, "send", failing)
    directory = f"{bucket.url}/tables"
    done = run(capsys, "export", str(SAMPLE), "-o", directory)
    assert done.status == FAILED
    assert "connection reset" in done.err
    assert not [path for path in stores.listing(directory) if "exchanges/part-" in path]
    manifest = stores.StorePath(f"{directory}/exchanges/_kdissect/manifest.json")
    assert not json.loads(manifest.read_text())["complete"]
    monkeypatch.undo()
    use(bucket.endpoint, monkeypatch)
    assert run(capsys, "export", str(SAMPLE), "-o", directory).status == OK
    assert json.loads(manifest.read_text())["complete"]


def test_worker_processes_open_it_again(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    url = bucket.put(SAMPLE.name, SAMPLE.read_bytes())
    expected = run(capsys, "read", str(SAMPLE))
    out, err = spawn("read", "-j", "2", url).communicate(timeout=60)
    assert out.decode() == expected.out
    assert err.decode() == expected.err


def test_secrets_inside_a_pcapng_file_are_used(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "tls.pcapng"
    pcapng_with_secrets(path)
    expected = run(capsys, "read", str(path))
    assert expected.out
    assert run(capsys, "read", bucket.put("tls.pcapng", path.read_bytes())).out == expected.out


# --- names


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data, path = capture_bytes(talk()), tmp_path_factory.mktemp("directory")
    for name, content in {
        "2.pcap": data,
        "a/1.pcap": data,
        "a/b/3.pcap.gz": gzip.compress(data),
        "a/b/log.gz": gzip.compress(b"no capture"),
        "a/empty.pcap": b"",
        "a/_SUCCESS": b"",
        "a/.hidden.pcap": data,
        ".git/4.pcap": data,
        "_temporary/5.pcap": data,
        "c/zst #1 [x].pcap.zst": zstandard.compress(data),
        "readme.txt": b"text",
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.fixture(scope="module")
def directory_url(directory: Path, server: tuple[str, Any]) -> str:
    """The same as a bucket."""
    server[1].create_dir("names")
    return Bucket(*server, "s3://names").put_all(directory)


@pytest.mark.parametrize(
    "pattern",
    [
        "", "/", "/a", "/a/", "/*.pcap", "/a/*", "/a/*/*.gz", "/**/*.pcap*", "/a/**/b", "/[ab]", "/?.pcap",
        "/{2.pcap,a/1*}", "/a/{b/*.gz,*.pcap}", "/{a,c}", "/missing.pcap",
        "/c/zst #1 [x].pcap.zst", "/nothing-*", "/*.txt",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("bucket")
def test_names_stand_for_the_same_captures(pattern: str, directory: Path, directory_url: str) -> None:
    assert expanded(f"{directory_url}{pattern}", directory_url) == expanded(
        f"{directory}{pattern}", str(directory)
    )


def expanded(name: str, base: str) -> list[str]:
    try:
        return [each.replace(base, "").rstrip("/") for each in captures([name])]
    except (UsageError, CaptureError) as error:
        return [str(error).replace(base, "")]


def test_addresses_of_other_stores() -> None:
    assert stores.normalized("S3N://bucket/x") == "s3://bucket/x"
    assert stores.normalized("gs://bucket") == "gs://bucket/"
    container = "abfss://c@account.dfs.core.windows.net"
    assert stores.normalized(f"{container}/x.pcap") == f"{container}/x.pcap"
    for name in ("captures/", "file:///x", "dbfs:/x", "s3:/bucket", "s3", "http://host/x"):
        assert stores.normalized(name) is None


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"hdfs://{SECRET}@host/x",
        f"abfss://c:{SECRET}@account.dfs.core.windows.net/x",
        f"abfss://c@account.dfs.core.windows.net/x?sv=2024&sig={SECRET}",
        f"s3://bucket/x?X-Amz-Signature={SECRET}",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "read", url)
    assert done.status == USAGE
    assert "credentials do not belong in a URL" in done.err
    assert SECRET not in done.out + done.err


def test_without_the_package_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    stores._client.cache_clear()
    done = run(capsys, "read", "gs://bucket/x")
    assert (done.status, done.err) == (
        USAGE,
        f"kdissect: gs:// needs pyarrow: {install('stores')}\n",
    )


# --- bytes


def test_reading_and_seeking_as_in_any_file(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MIN_AHEAD", 100)
    monkeypatch.setattr(stores, "_MAX_AHEAD", 1000)
    random = Random(1)
    data = random.randbytes(10_000)
    expected = io.BytesIO(data)
    with stores.open_file(bucket.put("x", data)) as file:
        for _ in range(300):
            if random.random() < 0.4:
                place, whence = random.choice(
                    [
                        (random.randrange(11_000), os.SEEK_SET),
                        (-random.randrange(200), os.SEEK_CUR),
                        (-5, os.SEEK_END),
                    ]
                )
                place = max(place, -expected.tell()) if whence == os.SEEK_CUR else place
                assert file.seek(place, whence) == expected.seek(place, whence)
            size = random.randrange(1500)
            assert file.read(size) == expected.read(size)
            assert file.tell() == expected.tell()


def test_a_part_of_a_file_is_read_from_its_place(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = pytest.importorskip("kdissect.spark.ranges")
    shuffling = pytest.importorskip("tests.shuffling")
    url = bucket.put("x.pcap", SAMPLE.read_bytes())
    divided = shuffling.find_ranges([url], DEFAULT, 20_000)
    assert len(divided.ranges) > 3
    assert [each._replace(path="") for each in divided.ranges] == [
        each._replace(path="") for each in shuffling.find_ranges([str(SAMPLE)], DEFAULT, 20_000).ranges
    ]
    last = divided.ranges[-1]
    _, blocks = ranges.open_range(last)
    tail = [packet.data for block in blocks for packet in block.packets]
    assert tail == [packet.data for packet in packets_of(SAMPLE)[last.before :]]
    divided.files[url].check(url)
    bucket.put("x.pcap", b"another")
    with pytest.raises(CaptureError, match="has a different s3://"):
        divided.files[url].check(url)


# --- troubles


def test_a_connection_that_breaks_is_tried_again(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.put("x.pcap", SAMPLE.read_bytes())
    troubles = Troubles()
    with proxy(bucket.endpoint, troubles) as endpoint:
        use(endpoint, monkeypatch)
        assert run(capsys, "read", url).out
        needed, troubles.requests, troubles.broken = troubles.requests, 0, 1
        done = run(capsys, "read", url)
        assert troubles.broken == 0
        assert troubles.requests == needed + 1
    assert done == run(capsys, "read", str(SAMPLE))


@pytest.mark.parametrize("status", [403, 503])
def test_a_store_that_refuses_is_one_line(
    status: int, bucket: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket.put("x.pcap", SAMPLE.read_bytes())
    troubles = Troubles()
    troubles.status = status
    with proxy(bucket.endpoint, troubles) as endpoint:
        use(endpoint, monkeypatch)
        for name in (url, f"{bucket.url}/*") if status == 403 else (url,):
            done = run(capsys, "read", name)
            assert done.status != OK
            assert done.err.startswith(f"kdissect: {name}: ")
            assert done.err.count("\n") == 1
            assert SECRET not in done.err
    assert troubles.requests > 1


def test_a_store_that_is_not_there(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("http://127.0.0.1:1", monkeypatch)
    done = run(capsys, "read", "s3://bucket/x.pcap")
    assert (
        done.err
        == "kdissect: s3://bucket/x.pcap: network connection: curlCode: 7, Could not connect to server\n"
    )


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_was_read_before_a_store_broke_off_is_kept(
    is_gone: bool,
    bucket: Bucket,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Either the file is removed while it is read, or replaced by a shorter one."""
    monkeypatch.setattr(stores, "_MIN_AHEAD", 1)
    monkeypatch.setattr(stores, "_MAX_AHEAD", 1)
    monkeypatch.setattr("kdissect.capture.source.FILE_BLOCK_BYTES", 4096)
    data = SAMPLE.read_bytes()
    url, most, delivered = bucket.put("x.pcap", data), 5 * 4096, 0
    read_all = stores._StoreFile.read

    def read(self: Any, size: int) -> bytes:
        nonlocal delivered
        if self.tell() + size > most:
            bucket.remove(url) if is_gone else bucket.put("x.pcap", data[:most])
        block = read_all(self, size)
        delivered = self.tell()
        return block

    monkeypatch.setattr(stores._StoreFile, "read", read)
    done = run(capsys, "read", url)
    (tmp_path / "cut.pcap").write_bytes(data[:delivered])
    expected = run(capsys, "read", str(tmp_path / "cut.pcap"))
    assert done.out == expected.out
    assert done.out.count("\n") > 5
    assert done.status == FAILED
    assert f"warning: {url}: " in done.err
    assert "; the rest was not read" in done.err


# --- Spark, without Java


@pytest.mark.parametrize("options", [{}, {"split": "connections", "tasks": "2"}, {"split": "files"}])
def test_rows_of_the_data_source(options: dict[str, str], bucket: Bucket, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.sources import rows

    pieces(packets_of(SAMPLE), tmp_path / "ring", 3)
    url = bucket.put_all(tmp_path / "ring")
    for table in ("exchanges", "anomalies"):
        expected = rows(tmp_path / "ring", table, **options)
        assert rows(url, table, **options) == expected  # type: ignore[arg-type]
    assert expected != Counter()


def test_a_stream_sees_the_files_of_a_ring(bucket: Bucket, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from kdissect.spark.stream import Ring

    pieces(packets_of(SAMPLE), tmp_path, 3)
    url = bucket.put_all(tmp_path)
    expected = [file[:2] for file in Ring([str(tmp_path)], DEFAULT).files()]
    for name in (url, f"{url}/", f"{url}/*.pcapng"):
        files = Ring([name], DEFAULT).files()
        assert [file[:2] for file in files] == expected
        assert {file.ring for file in files} == {f"{url}/ring-.pcapng"}
    with open_capture(*(file.path for file in files)) as capture:
        assert len(list(capture)) == len(packets_of(SAMPLE))


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("tasks", ["1", "3"] if IS_DEEP else ["3"])
def test_spark_decodes_from_a_store(
    tasks: str, bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, sample in SAMPLES.items():
        bucket.put(name, sample.read_bytes())
    options = ("--format", "parquet", "--tables", "exchanges,records,connections")
    expected = run(capsys, "export", *options, *map(str, SAMPLES.values()), "-o", str(tmp_path / "export"))
    command = ("spark", "decode", *options, "--tasks", tasks, "--master", "local[2]")
    directory = f"{bucket.url}-tables"
    _, err = spawn(*command, f"{bucket.url}/*", "-o", directory).communicate(timeout=600)
    assert "exchanges" in rows_in(expected.err)
    assert rows_in(err.decode()) == rows_in(expected.err)
    manifest = json.loads(stores.StorePath(f"{directory}/exchanges/_kdissect/manifest.json").read_text())
    assert manifest["complete"]
    assert {f"{directory}/exchanges/{file['path']}" for file in manifest["files"]} <= stores.listing(
        directory
    ).keys()


def test_a_worker_writes_to_a_store(bucket: Bucket, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from kdissect.options import ExportOptions
    from kdissect.spark.decode import decode
    from tests.spark.test_decode import Workers

    url, workers = bucket.put("x.pcap", SAMPLE.read_bytes()), Workers()
    done = [
        decode(workers, [url], ExportOptions(directory))  # type: ignore[arg-type]
        for directory in (output_directory(f"{bucket.url}/tables"), tmp_path)
    ]
    assert done[0].rows == done[1].rows
    assert (done[0].files, done[0].complete) == (done[1].files, True)
    assert not [path for path in stores.listing(bucket.url) if ".kdissect" in path]


def rows_in(report: str) -> str:
    return report.rpartition("rows: ")[2]


# --- what the page shows


def test_the_commands_of_the_page(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in ("21", "22"):
        bucket.put(f"captures/2026-11-{day}/kafka.pcap.gz", gzip.compress(SAMPLE.read_bytes()))
    bucket.put("captures/kafka.pcap.zst", zstandard.compress(SAMPLE.read_bytes()))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for line in block.splitlines()]
    assert len(commands) == 4
    for program, *arguments in commands:
        assert program == "kdissect"
        done = run(capsys, *(each.replace("s3://bucket", bucket.url) for each in arguments))
        assert done.status == OK, done.err
    assert (tmp_path / "tables" / "exchanges" / "_kdissect" / "manifest.json").exists()
    assert f"{bucket.url}/tables/exchanges/_kdissect/manifest.json" in stores.listing(f"{bucket.url}/tables")


# --- other stores


@pytest.mark.deep
@pytest.mark.parametrize("start", [azurite, gcs_emulator, mini_hdfs])
def test_another_store(
    start: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path) as (url, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for name, path in SAMPLES.items():
            with path.open("rb") as file:
                stores.StorePath(f"{url}/captures/{name}").send(file)
        shown = run(capsys, "read", f"{url}/captures/{SAMPLE.name}")
        assert shown == run(capsys, "read", str(SAMPLE))
        assert "184 exchanges" in run(capsys, "check", f"{url}/captures/{{kafka-4-quota,x}}.pcap.gz").out
        directories = (
            (f"{url}/captures", f"{url}/tables"),
            (*map(str, SAMPLES.values()), str(tmp_path / "tables")),
        )
        ends = []
        for *names, directory in directories:
            done = run(capsys, "export", "--format", "jsonl", *names, "-o", directory)
            assert done.status == OK, done.err
            ends.append(rows_in(done.err))
        assert ends[0] == ends[1]
        manifest = stores.StorePath(f"{url}/tables/exchanges/_kdissect/manifest.json")
        assert json.loads(manifest.read_text())["complete"]
        missing = run(capsys, "read", f"{url}/captures/none.pcap")
        assert missing.err == f"kdissect: {url}/captures/none.pcap: no such file or directory\n"
    stores._client.cache_clear()
