"""Builds the native core (core/) where that is possible. All else about the package is in pyproject.toml.

Without a Rust that is new enough, without its crates within reach, or if it does not compile, the package is
built without the core: one line on stderr says why, and Python does all the work. ``KDISSECT_CORE=no`` leaves
the core out; ``KDISSECT_CORE=require`` makes such a failure fatal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import PlatformError
from setuptools_rust import RustExtension, build_rust
from setuptools_rust.rustc_info import get_rust_version

OLDEST_RUST = (1, 85)  # core/Cargo.toml says it too
FETCH_SECONDS = 20
CORE = RustExtension("kdissect._core", "core/Cargo.toml", args=["--locked"], debug=False)


class BuildCore(build_rust):
    """Builds the core, or goes on without it."""

    def run(self) -> None:
        choice = os.environ.get("KDISSECT_CORE", "")
        if choice not in ("", "no", "require"):
            raise PlatformError(f"KDISSECT_CORE can be no or require, not {choice!r}")
        self.remove_built()
        try:
            if choice == "no":
                raise PlatformError("KDISSECT_CORE=no")
            check_rust()
            self.fetch_crates(seconds=None if choice == "require" else FETCH_SECONDS)
            super().run()
        except Exception as error:
            if choice == "require":
                raise
            print(f"kdissect is built without its native core: {error}", file=sys.stderr)
            self.distribution.rust_extensions.clear()
            self.distribution.has_ext_modules = lambda: False

    def remove_built(self) -> None:
        """Remove what an earlier build left: it may belong to other sources."""
        build_ext = self.get_finalized_command("build_ext")
        build_ext.inplace = self.inplace
        for file in Path(build_ext.get_ext_fullpath(CORE.name)).parent.glob("_core.*.so"):
            file.unlink()

    def fetch_crates(self, seconds: int | None) -> None:
        """Download what the core is built from. Left alone, cargo tries for minutes."""
        command = [self.cargo, "fetch", "--locked", "--quiet", "--manifest-path", CORE.path]
        try:
            subprocess.run(command, check=True, timeout=seconds)
        except (OSError, subprocess.SubprocessError) as error:
            raise PlatformError("its crates cannot be downloaded") from error


class TagWheel(bdist_wheel):
    """Names the wheel after what is in it, which is known only once that has been built."""

    def initialize_options(self) -> None:  # not as options of setup(), which editable installs lose
        super().initialize_options()
        self.py_limited_api = False if is_free_threaded() else "cp311"

    def run(self) -> None:
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


def check_rust() -> None:
    if is_free_threaded():
        raise PlatformError("free-threaded Pythons have no stable ABI")
    oldest = ".".join(map(str, OLDEST_RUST))
    version = get_rust_version(None)
    if version is None:
        raise PlatformError(f"no Rust found (it needs {oldest} or later)")
    if (version.major, version.minor) < OLDEST_RUST:
        raise PlatformError(f"Rust {version} is too old (it needs {oldest} or later)")


def is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


setup(rust_extensions=[CORE], cmdclass={"build_rust": BuildCore, "bdist_wheel": TagWheel})
