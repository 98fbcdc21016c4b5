"""``~/.config/kdissect/config.toml`` -> defaults of options, colors, names of hosts.

docs/config.md describes the file. A command reads it once. Tables of other commands are checked when
those run, and by ``kdissect config show``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.option_names import GROUPS, flag_of, name_of, options_of
from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

DEFAULTS, PROFILES = "defaults", "profiles"
COLORS, HOSTS = "colors", "hosts"
CONFIG_VARIABLE, PROFILE_VARIABLE = "KDISSECT_CONFIG", "KDISSECT_PROFILE"
_OPTIONS = {
    "config": (
        "FILE",
        CONFIG_VARIABLE,
        f"Configuration file; same as {CONFIG_VARIABLE}=FILE. See docs/config.md.",
    ),
    "profile": ("NAME", PROFILE_VARIABLE, f"Profile in that file; same as {PROFILE_VARIABLE}=NAME."),
}
_LOADED = f"{__name__}.loaded"  # in the context: the file


class Setting(NamedTuple):
    """A value as it is in the file, and the table that has it: ``profiles.prod.read``."""

    value: Any
    table: str


class ConfigFile(NamedTuple):
    """The file, and the chosen profile.

    Attributes:
        path: of the file; None: there is none.
        tables: its content.
        profile: name of the profile; None: none was chosen.
    """

    path: Path | None = None
    tables: Mapping[str, Any] = {}
    profile: str | None = None

    def options(self, command: str) -> dict[str, Setting]:
        """The settings that apply to a command. Those of a profile override the others, those in the table
        of the command override those in ``[defaults]``.
        """
        return self.settings(DEFAULTS, command)

    def settings(self, *names: str) -> dict[str, Setting]:
        """The settings in tables; later ones override earlier ones, and those of a profile all others."""
        settings: dict[str, Setting] = {}
        for prefix, tables in self.layers():
            for name in names:
                table = prefix + name.replace(" ", ".")
                settings |= {key: Setting(value, table) for key, value in _table(tables, name).items()}
        return settings

    def colors(self) -> dict[str, str]:
        """Colors, as ``Style`` takes them.

        Raises:
            UsageError: there is no such color, or nothing that can have it.
        """
        return {key: self._color(key, setting) for key, setting in self.settings(COLORS).items()}

    def hosts(self) -> dict[str, str]:
        """Names of hosts by address, with or without a port.

        Raises:
            UsageError: something is not an address, or not a name.
        """
        return {key: self._host(key, setting) for key, setting in self.settings(HOSTS).items()}

    def layers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The file and its profile: what stands before the names of their tables, and the tables."""
        yield "", self.tables
        if self.profile is not None:
            yield f"{PROFILES}.{self.profile}.", self.tables[PROFILES][self.profile]

    def default_map(self, context: click.Context) -> dict[str, Any]:
        """The values of a command's options, by parameter, as click takes them.

        Raises:
            UsageError: there is no such option, or its value has the wrong type.
        """
        known = {key_of(option): option for option in options_of(context)}
        parent = context.parent
        if parent is not None and parent.parent is not None and isinstance(parent.command, click.Group):
            group = name_of(parent)
            for prefix, tables in self.layers():
                names = parent.command.list_commands(parent)
                self.check_tables(f"{prefix}{group}.", _table(tables, group), names)
        values = {}
        for key, (value, table) in self.options(name_of(context)).items():
            option = known.get(key)
            if option is not None and option.name is not None:
                values[option.name] = self._value(key, value, table, option)
            elif not is_defaults(table) or key not in KEYS:
                long = [name for name, each in known.items() if f"-{key}" in each.opts]
                hint = did_you_mean(long[0] if long else key, KEYS if is_defaults(table) else known)
                raise self.error(table, f'unknown key "{key}"{hint}')
        return {name: value for name, value in values.items() if value is not None}

    def error(self, table: str, text: str) -> UsageError:
        """An error in a table."""
        return UsageError(f"{self.path}: [{table}] {text}" if table else f"{self.path}: {text}")

    def check_tables(self, prefix: str, tables: Any, known: Collection[str]) -> None:
        """Check that there are only tables, and only known ones.

        Raises:
            UsageError: there are others.
        """
        if not isinstance(tables, dict):
            raise self.error("", f"{prefix.rstrip('.')} is not a table")
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise self.error(
                    "", f"{prefix}{name} is not a table; keys belong in tables such as [defaults]"
                )
            if name not in known:
                raise self.error("", f"unknown table [{prefix}{name}]{did_you_mean(name, known)}")

    def _color(self, key: str, setting: Setting) -> str:
        from kdissect.text import style

        if key not in style.COLORS:
            raise self.error(setting.table, f'unknown key "{key}"{did_you_mean(key, style.COLORS)}')
        words = setting.value.split() if isinstance(setting.value, str) else [str(setting.value)]
        for word in words:
            if word not in style.CODES:
                hint = did_you_mean(word, style.CODES)
                raise self.error(setting.table, f'{key}: unknown color "{word}"{hint}')
        return " ".join(words)

    def _host(self, key: str, setting: Setting) -> str:
        from ipaddress import ip_address

        host, _, port = key.rpartition(":")
        has_port = port.isdecimal() and (":" not in host or host.startswith("["))
        try:
            ip_address(host.strip("[]") if has_port else key)
        except ValueError:
            raise self.error(
                setting.table, f'invalid address "{key}": use 10.0.0.5, 10.0.0.5:9092 or [fd00::5]:9092'
            ) from None
        if not isinstance(setting.value, str):
            raise self.error(setting.table, f'"{key}" must be a string')
        return setting.value

    def _value(self, key: str, value: Any, table: str, option: click.Option) -> Any:
        """What the command line would have. None: a flag that is not set."""
        if option.is_flag:
            if not isinstance(value, bool):
                raise self.error(table, f"{key} must be true or false")
            return value if option.is_bool_flag else option.flag_value if value else None
        values = value if option.multiple and isinstance(value, list) else [value]
        if any(isinstance(each, bool | list | dict) for each in values):
            raise self.error(table, f"{key} must be a string or a number{' or a list' * option.multiple}")
        texts = [each.isoformat() if hasattr(each, "isoformat") else str(each) for each in values]
        return texts if option.multiple else texts[0]


def key_of(option: click.Option) -> str:
    """An option in the file: its long name, or its letter if it has none."""
    return flag_of(option).lstrip("-")


KEYS = frozenset(flag.lstrip("-") for group, flags in GROUPS.items() if group != "Help" for flag in flags)
"""All options of all commands, for ``[defaults]``."""


def config_options() -> list[click.Option]:
    """``--config`` and ``--profile``: parsed before all others."""
    return [
        click.Option(
            [f"--{name}"],
            metavar=metavar,
            envvar=variable,
            help=text,
            callback=_keep,
            is_eager=True,
            expose_value=False,
        )
        for name, (metavar, variable, text) in _OPTIONS.items()
    ]


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[f"{__name__}.{option.name}"] = value


def configuration(context: click.Context) -> ConfigFile | None:
    """The configuration file of a command whose --config and --profile are parsed; None for others.

    Raises:
        UsageError: it cannot be read, or has a mistake.
    """
    names = [f"{__name__}.{name}" for name in _OPTIONS]
    meta = context.meta
    if _LOADED not in meta and not context.resilient_parsing and all(name in meta for name in names):
        meta[_LOADED] = load(context, *(meta[name] for name in names))
    return meta.get(_LOADED)


def usual_path() -> Path:
    """Where the file is, unless --config or KDISSECT_CONFIG names another."""
    directory = os.environ.get("XDG_CONFIG_HOME", "")
    return (
        Path(directory if directory.startswith("/") else "~/.config").expanduser()
        / "kdissect"
        / "config.toml"
    )


def load(context: click.Context, name: str | None, profile: str | None) -> ConfigFile:
    """Read the file.

    Args:
        context: of a command.
        name: of the file; None: the usual one, which need not exist.
        profile: name of a profile in it.

    Raises:
        UsageError: it cannot be read, has an unknown table, or does not have the profile.
    """
    path = usual_path() if name is None else Path(name)
    if name is None and not path.is_file():
        if profile is not None:
            raise UsageError(f'no profile "{profile}": {path} does not exist')
        return ConfigFile()
    import tomllib

    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except (OSError, ValueError) as error:  # of TOML or UTF-8
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    config = ConfigFile(path, tables, profile)
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    known = (DEFAULTS, COLORS, HOSTS, *root.command.list_commands(root))
    config.check_tables("", tables, (*known, PROFILES))
    profiles = tables.get(PROFILES, {})
    config.check_tables(f"{PROFILES}.", profiles, profiles)
    for each, its_tables in profiles.items():
        config.check_tables(f"{PROFILES}.{each}.", its_tables, known)
    if profile is not None and profile not in profiles:
        raise config.error("", f'no profile "{profile}"{did_you_mean(profile, profiles)}')
    config.colors()
    config.hosts()
    return config


def is_defaults(table: str) -> bool:
    """Whether a table has settings for all commands."""
    return table.rpartition(".")[2] == DEFAULTS


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for word in name.split():
        tables = tables.get(word, {})
    return tables
