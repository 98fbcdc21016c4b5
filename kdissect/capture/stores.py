"""Names of files -> their status and their bytes: paths on this machine, and URLs of object stores.

    s3://BUCKET/KEY, also s3a:                          pyarrow.fs
    gs://BUCKET/KEY                                     pyarrow.fs
    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY  pyarrow.fs
    hdfs://HOST:PORT/PATH                               hdfs-native

Endpoints and credentials are in the environment variables that each store's own programs use; a URL must have
none. The libraries retry requests that fail. Their exceptions become an ``OSError`` of one line.

Files are also written (``StorePath``): first on this machine, then sent as a whole.

Holds a client for each bucket, and up to ``_MAX_AHEAD`` bytes of each open file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager, suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self, cast
from urllib.parse import urlsplit
from zlib import crc32

from kdissect.errors import UsageError
from kdissect.extras import install

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMES = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfss": "abfss", "abfs": "abfss", "hdfs": "hdfs",
}  # fmt: skip
_URL = re.compile(
    rf"(?P<scheme>{'|'.join(_SCHEMES)})://(?P<place>[^/]*)/*(?P<path>.*)", re.DOTALL | re.IGNORECASE
)
_ONE_SLASH = re.compile(rf"^({'|'.join(_SCHEMES)}):/+", re.IGNORECASE)
_PARAMETERS = re.compile(r"\?[\w-]+=.*", re.DOTALL)
"""The end of a signed URL."""
_AWS_ERROR = re.compile(r"AWS Error (?P<code>[A-Z_]+) during \w+ operation: *(?P<detail>[^;\n]*)")
_MAX_REASON = 200

WILDCARDS = frozenset("*?[{")

# A request takes tens of milliseconds, so a file that is read further is read in larger pieces.
_MIN_AHEAD = 64 * 1024
_MAX_AHEAD = 8 * 1024 * 1024
_CONNECT_S, _REQUEST_S = 10, 30
_HDFS_RETRIES = {"dfs.client.failover.max.attempts": "3"}  # the usual 15 take minutes
_ONE_REQUEST_BYTES = 5 * 1024 * 1024
"""Up to this size a file is sent as a whole, and replaces another one only if that succeeds."""


class Status(NamedTuple):
    """What is known of a file.

    Attributes:
        size: bytes of a regular file; None for anything else.
        modified_ns: when it was last modified; 0 if the store does not record it.
    """

    size: int | None
    modified_ns: int


class _Address(NamedTuple):
    """A URL as its store's client knows it.

    Attributes:
        client: a ``pyarrow.fs.FileSystem``.
        path: of the file.
        root: the beginning of all paths; ``base`` has its place in URLs.
    """

    client: Any
    path: str
    root: str
    base: str


def normalized(name: str) -> str | None:
    """The URL of a file in a store, with the usual scheme; None if the name is something else.

    Raises:
        UsageError: it contains credentials.
    """
    url = _URL.fullmatch(name)
    if url is None:
        return None
    scheme, place = _SCHEMES[url["scheme"].lower()], url["place"]
    user, is_there, _ = place.rpartition("@")
    if _PARAMETERS.search(url["path"]) or (is_there and (scheme != "abfss" or ":" in user)):
        raise UsageError(f"credentials do not belong in a URL; use the environment variables of {scheme}://")
    return f"{scheme}://{place}/{url['path']}"


def status(name: str) -> Status:
    """The status of a file.

    Raises:
        OSError: there is no such file, or its store cannot be reached.
        UsageError: a package is missing.
    """
    if (url := normalized(name)) is None:
        local = os.stat(name)  # noqa: PTH116  (for thousands of files)
        size = local.st_size if stat.S_ISREG(local.st_mode) else None
        return Status(size, local.st_mtime_ns)
    address = _address(url)
    with _one_line_errors():
        return _status(address.client.get_file_info(address.path))


def size(name: str) -> int | None:
    """Bytes of a regular file; None for anything else, also if there is no such file."""
    try:
        return status(name).size
    except OSError:
        return None


FIRST_BYTES = 4 * 1024
"""Start of a file that identifies it: long enough for the headers and the first packet."""


def begins(name: str, size: int) -> int:
    """CRC-32 of a file's first ``FIRST_BYTES`` when it had ``size`` bytes.

    Raises:
        OSError: the file cannot be read.
    """
    with open_file(name) as file:
        return crc32(file.read(min(FIRST_BYTES, size)))


def open_file(name: str) -> IO[bytes]:
    """Open a file to read and seek in it. The caller closes it.

    Raises:
        OSError: there is no such file, or its store cannot be reached.
        UsageError: a package is missing.
    """
    url = normalized(name)
    return open(name, "rb", buffering=0) if url is None else cast("IO[bytes]", _StoreFile(url))  # noqa: PTH123


def listing(url: str, *, is_recursive: bool = True) -> dict[str, Status]:
    """The files and directories in a directory of a store, by URL in alphabetical order; those in its
    subdirectories too if ``is_recursive``. Empty if there is no such directory.

    Raises:
        OSError: the store cannot be reached.
        UsageError: a package is missing.
    """
    from pyarrow.fs import FileSelector

    address = _address(url)
    with _one_line_errors():
        selector = FileSelector(address.path, recursive=is_recursive, allow_not_found=True)
        infos = address.client.get_file_info(selector)
    listed = {address.base + info.path.removeprefix(address.root): _status(info) for info in infos}
    return dict(sorted(listed.items()))


def matching(url: str) -> dict[str, Status]:
    """The files and directories that match a glob, as in ``listing``. ``**`` matches any number of
    directories.

    Raises:
        OSError: the store cannot be reached.
        UsageError: a package is missing.
    """
    patterns = url.split("/")
    last = len(patterns) - 1
    fixed = next((place for place, each in enumerate(patterns) if not WILDCARDS.isdisjoint(each)), last)
    is_recursive = "**" in patterns or fixed < last
    listed = listing("/".join(patterns[:fixed]), is_recursive=is_recursive)
    return {each: known for each, known in listed.items() if _matches(each.split("/"), patterns)}


def _matches(names: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not names
    is_shown = bool(names) and (not names[0].startswith(".") or patterns[0].startswith("."))
    if patterns[0] == "**":
        return _matches(names, patterns[1:]) or (is_shown and _matches(names[1:], patterns))
    return is_shown and fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])


class _StoreFile:
    """The part of ``IO[bytes]`` that readers of captures use."""

    def __init__(self, url: str) -> None:
        address = _address(url)
        self.name = url
        self._status: Status | None = None
        with _one_line_errors():
            self._file = address.client.open_input_file(address.path)
            self._size = self._file.size()
        self._position = self._start = 0
        self._data = b""  # from _start on
        self._ahead = _MIN_AHEAD

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._data = b""
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int) -> bytes:
        """That many bytes, fewer only at the end of the file.

        Raises:
            OSError: the store did not deliver them, or the file was replaced.
        """
        end = min(self._position + size, self._size)
        if not self._start <= self._position <= self._start + len(self._data):
            self._start, self._data = self._position, b""
        pieces = [self._data[self._position - self._start : end - self._start]]
        place = self._position + len(pieces[0])
        while place < end:
            self._data = self._fetch(place, max(end - place, self._ahead))
            self._start, self._ahead = place, min(2 * self._ahead, _MAX_AHEAD)
            pieces.append(self._data[: end - place])
            place += len(pieces[-1])
        self._position = place
        return b"".join(pieces)

    def _fetch(self, place: int, size: int) -> bytes:
        """Up to this many bytes from a position. If the file is shorter now, pyarrow returns other bytes."""
        with _one_line_errors():
            data: bytes = self._file.read_at(size, place)
        before, self._status = self._status, status(self.name)
        if self._status.size != self._size or before not in (None, self._status) or not data:
            raise OSError(errno.EIO, "was replaced by another file while being read")
        return data


class StorePath(PurePosixPath):
    """The URL of a file or directory, with those methods of ``pathlib.Path`` that writers of tables use."""

    __slots__ = ()

    def __str__(self) -> str:
        return _ONE_SLASH.sub(r"\1://", super().__str__())

    def resolve(self) -> Self:
        return self

    absolute = resolve

    def as_uri(self) -> str:
        """The URL as Spark and Hadoop know it."""
        return re.sub("^s3://", "s3a://", str(self))

    def stat(self) -> os.stat_result:
        """Only the size is known."""
        return os.stat_result((0, 0, 0, 0, 0, 0, status(str(self)).size or 0, 0, 0, 0))

    def exists(self) -> bool:
        return self._known() is not None

    def is_file(self) -> bool:
        known = self._known()
        return known is not None and known.size is not None

    def is_dir(self) -> bool:
        known = self._known()
        return known is not None and known.size is None

    def is_symlink(self) -> bool:
        return False

    def iterdir(self) -> Iterator[Self]:
        return map(type(self), listing(str(self), is_recursive=False))

    def rglob(self, _: str) -> Iterator[Self]:
        """All files and directories below."""
        return map(type(self), listing(str(self)))

    def glob(self, pattern: str) -> Iterator[Self]:
        return map(type(self), matching(f"{self}/{pattern}"))

    def read_text(self, encoding: str = "utf-8") -> str:
        with open_file(str(self)) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            return file.read(size).decode(encoding)

    def touch(self) -> None:
        from tempfile import TemporaryFile  # needed only to write

        with TemporaryFile() as file:
            self.send(file)

    def unlink(self, *, missing_ok: bool = True) -> None:  # noqa: ARG002  (S3 does not know)
        address = _address(str(self))
        with suppress(FileNotFoundError), _one_line_errors():
            address.client.delete_file(address.path)

    def move(self, target: StorePath) -> None:
        """Rename a file; a store that cannot copies it.

        Raises:
            OSError: the store refused.
        """
        old, new = _address(str(self)), _address(str(target))
        with _one_line_errors():
            try:
                old.client.move(old.path, new.path)
            except NotImplementedError:  # Azure without a hierarchical namespace
                old.client.copy_file(old.path, new.path)
                old.client.delete_file(old.path)

    def rmtree(self) -> None:
        """Remove all files below, as far as possible."""
        address = _address(str(self))
        with suppress(OSError), _one_line_errors():
            address.client.delete_dir(address.path)

    def rmdir(self) -> None:
        """Do nothing: a directory without files is none."""

    def send(self, file: IO[bytes]) -> None:
        """Write the file with this content. It appears when it is complete.

        Raises:
            OSError: the store did not take it.
        """
        from shutil import copyfileobj

        address, size = _address(str(self)), file.seek(0, os.SEEK_END)
        file.seek(0)
        try:
            with (
                _one_line_errors(),
                address.client.open_output_stream(address.path, compression=None) as stream,
            ):
                copyfileobj(file, stream, _MAX_AHEAD)
            is_there = status(str(self)).size == size
        except OSError:
            if size > _ONE_REQUEST_BYTES:  # the client may have sent the beginning
                with suppress(OSError):
                    self.unlink()
            raise
        if not is_there:
            raise OSError(errno.EIO, "differs in size from what was written")

    def _known(self) -> Status | None:
        try:
            return status(str(self))
        except FileNotFoundError:
            return None


def _status(info: Any) -> Status:
    from pyarrow.fs import FileType

    if not info.is_file and info.type != FileType.Directory:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return Status(info.size if info.is_file else None, info.mtime_ns or 0)


def _address(url: str) -> _Address:
    parts = _URL.fullmatch(url)
    assert parts is not None
    scheme, place = parts["scheme"], parts["place"]
    root = {"hdfs": "/", "abfss": f"{place.partition('@')[0]}/"}.get(scheme, f"{place}/")
    path = (root + parts["path"]).rstrip("/") or root
    return _Address(_client(scheme, place, os.getpid()), path, root, f"{scheme}://{place}/")


@cache
def _client(scheme: str, place: str, process: int) -> Any:  # noqa: ARG001
    """The client of a bucket, container or cluster. It does not survive a fork."""
    try:
        from pyarrow import fs
    except ImportError as error:
        raise UsageError(f"{scheme}:// needs pyarrow: {install('stores')}") from error
    with _one_line_errors():
        return {"s3": _s3, "gs": _gs, "abfss": _abfss, "hdfs": _hdfs}[scheme](fs, place)


def _s3(fs: Any, bucket: str) -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not (region or endpoint):
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        endpoint_override=endpoint, region=region, connect_timeout=_CONNECT_S, request_timeout=_REQUEST_S
    )


def _gs(fs: Any, _: str) -> Any:
    retries = timedelta(seconds=_REQUEST_S)
    emulator = urlsplit(os.environ.get("STORAGE_EMULATOR_HOST", ""))
    if not emulator.netloc:
        return fs.GcsFileSystem(retry_time_limit=retries)
    return fs.GcsFileSystem(
        anonymous=True, scheme=emulator.scheme, endpoint_override=emulator.netloc, retry_time_limit=retries
    )


def _abfss(fs: Any, place: str) -> Any:
    account, _, domain = place.rpartition("@")[2].partition(".")
    key, token = (os.environ.get(f"AZURE_STORAGE_{name}") for name in ("KEY", "SAS_TOKEN"))
    parts = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    connection = {name: value for name, _, value in (part.partition("=") for part in parts)}
    key = key or connection.get("AccountKey")
    endpoint = urlsplit(connection.get("BlobEndpoint", ""))
    return fs.AzureFileSystem(
        account,
        account_key=key,
        sas_token=None if key else token,
        dfs_storage_authority=endpoint.netloc or f".{domain}",
        blob_storage_authority=endpoint.netloc or f".{domain.replace('dfs.', 'blob.', 1)}",
        dfs_storage_scheme=endpoint.scheme or "https",
        blob_storage_scheme=endpoint.scheme or "https",
    )


def _hdfs(fs: Any, place: str) -> Any:
    try:
        from hdfs_native.fsspec import HdfsFileSystem
    except ImportError as error:
        raise UsageError("hdfs:// needs hdfs-native: pip install hdfs-native fsspec") from error
    host, _, port = place.partition(":")
    client = HdfsFileSystem(host or None, int(port) if port else None, **_HDFS_RETRIES)
    return fs.PyFileSystem(fs.FSSpecHandler(client))


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn an exception of a client into an ``OSError`` with a short reason."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
    except (OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise OSError(errno.EIO, _reason(str(error))) from None


def _reason(text: str) -> str:
    if (error := _AWS_ERROR.search(text)) is not None:
        detail = error["detail"].strip(" .")
        text = error["code"].replace("_", " ").lower() + (f": {detail}" if detail else "")
    return _PARAMETERS.sub("", text.partition("\n")[0])[:_MAX_REASON]
