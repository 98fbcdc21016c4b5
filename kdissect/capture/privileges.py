"""Root -> a process without privileges, once what needs them is open.

    user = chosen_user("-Z")          before anything is opened
    drop_privileges(user)             after the sockets: in the relay, and in the process that dissects
    check_output(path, user)          before the first packet

As with tcpdump: sockets are opened first, then the user changes. No process keeps a capability, so the bytes
of strangers are dissected without any. Holds nothing. Linux only; elsewhere ``live -i`` does not exist.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = 0

# From linux/prctl.h and linux/capability.h.
_DROP_FROM_BOUNDING_SET, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_ALL = 24, 38, 47, 4
_CAPABILITY_VERSION = 0x20080522  # 3: sets of 64 bits, in two halves
_CAPABILITIES = 64


class User(NamedTuple):
    """Who a process becomes. ``name`` is None if the ID has none."""

    name: str | None
    uid: int
    gid: int

    def __str__(self) -> str:
        return self.name or f"user {self.uid}"


def chosen_user(name: str | None) -> User | None:
    """The user to become: the one named (a name or an ID), or the one who called sudo. None: nobody else.

    Raises:
        UsageError: there is no such user, or only root could become that user.
    """
    if os.geteuid() != _ROOT:
        if name is not None:
            raise UsageError("-Z needs root")
        return None
    if name is not None:
        user = _user(name)
        if user is None:
            raise UsageError(f'-Z: no user "{name}"')
        if (obstacle := _obstacle(user)) is not None:
            raise UsageError(f"-Z: {obstacle}")
        return user
    user = _sudo_user()
    return None if user is None or _obstacle(user) is not None else user


def why_root() -> str | None:
    """Why root cannot become the user who called sudo; None: nobody did, or nothing prevents it."""
    user = _sudo_user()
    return None if user is None else _obstacle(user)


def drop_privileges(user: User | None) -> None:
    """Become this user (None: stay the same), without capabilities and unable to gain any. To be called
    before other threads start: capabilities belong to a thread.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_CAPABILITIES):  # not permitted without root: then there is nothing to lose
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    if user is not None:
        _set_groups(user)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)  # 0: this thread
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable
    if libc.capset(header, nothing) or libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot drop privileges")


def check_output(path: Path, user: User | None, *, is_directory: bool) -> None:
    """Check that this process can create, rename and delete files where it will write.

    Args:
        path: a file, or a directory that may not exist yet.
        user: the one that it became, for the message.
        is_directory: whether files are written into it.

    Raises:
        UsageError: it cannot.
    """
    if not is_directory and path.exists() and not path.is_file():
        return  # a pipe or a device
    directory = path if is_directory else path.parent
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent  # is created later, inside this one
    try:
        descriptor, created = mkstemp(prefix=".kdissect-", dir=directory)
        os.close(descriptor)
        Path(created).rename(f"{created}-renamed").unlink()
    except OSError as error:
        who = "root without capabilities" if user is None else str(user)
        other = "-Z USER" if user is None else f"-Z root, or: chown {user}"
        raise UsageError(f"{who} cannot write to {directory} ({error.strerror}); use {other}") from None


def _user(text: str) -> User | None:
    import pwd

    with suppress(KeyError, OverflowError):
        entry = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
        return User(entry.pw_name, entry.pw_uid, entry.pw_gid)
    return User(None, int(text), int(text)) if text.isdecimal() and int(text) < 1 << 31 else None


def _sudo_user() -> User | None:
    """The user who called sudo, unless that is root."""
    user = _user(os.environ.get("SUDO_UID", ""))
    return None if user is None or user.uid == _ROOT else user


def _obstacle(user: User) -> str | None:
    """Why kdissect cannot run as a user."""
    blocked = _unreadable(user)
    return blocked and f"{user} cannot read {blocked}, where kdissect or Python is installed"


def _unreadable(user: User) -> str | None:
    """A directory that Python imports from, and this user cannot read."""
    entries = [entry for entry in sys.path if Path(entry).is_dir()]
    directories = [str(Path(__file__).parent), str(Path(os.__file__).parent), *entries]
    with _acting_as(user):
        for each in directories:
            if not os.access(each, os.R_OK | os.X_OK, effective_ids=True):
                return each
    return None


@contextmanager
def _acting_as(user: User) -> Iterator[None]:
    groups, gid = os.getgroups(), os.getegid()
    _set_groups(user)
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(_ROOT)
        os.setegid(gid)
        os.setgroups(groups)


def _set_groups(user: User) -> None:
    if user.name is None:
        os.setgroups([user.gid])
    else:
        os.initgroups(user.name, user.gid)
