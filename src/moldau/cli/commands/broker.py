"""`moldau broker`: one broker in the foreground.

This module is all that a starting broker imports of the command line, so it imports nothing heavy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moldau.settings import InvalidSetting, parse_properties

if TYPE_CHECKING:
    from moldau.broker.settings.broker import BrokerSettings

Flags = dict[str, list[str]]

# The flags that are short for one setting.
SETTING_OF_FLAG = {
    "--data-dir": "log.dirs",
    "--listen": "listeners",
    "--advertise": "advertised.listeners",
    "--id": "node.id",
    "--zookeeper": "zookeeper.connect",
    "--http": "http.listen",
    "--log-format": "log.format",
}
REPEATABLE = frozenset(("--set",))
# The flags without a value.
SWITCHES = frozenset(("--secure",))
ALL_FLAGS = frozenset((*SETTING_OF_FLAG, "--authority", "--config", "--set", *SWITCHES))

EXIT_FAILED, EXIT_USAGE = 1, 2


class WrongUsage(Exception):
    """The command line or a config file asks for something that cannot be."""


def parse_flags(words: Sequence[str]) -> Flags | None:
    """Return the flags of a well-formed command line; None for one that is not, or asks for
    help."""
    found: Flags = {}
    remaining = iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        if flag not in ALL_FLAGS or (flag in found and flag not in REPEATABLE):
            return None
        if flag in SWITCHES and not equals:
            found[flag] = []
            continue
        given = value if equals else next(remaining, None)
        if given is None or (not equals and given.startswith("--")):
            return None
        found.setdefault(flag, []).append(given)
    return found


def run_broker(flags: Flags) -> int:
    """Start the broker and serve until a signal ends it; the result is the exit status."""
    try:
        settings = settings_of(flags)
    except (WrongUsage, InvalidSetting) as problem:
        print(f"error: {problem}", file=sys.stderr)
        print("  try: `moldau broker --help`", file=sys.stderr)
        return EXIT_USAGE

    from moldau.broker.process import run
    from moldau.cluster.store import StoreError
    from moldau.http.companion import companion_of
    from moldau.log.errors import LogError

    try:
        run(settings, companion_of(settings))
    except InvalidSetting as problem:
        print(f"error: {problem}", file=sys.stderr)
        return EXIT_USAGE
    except (LogError, StoreError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as problem:
        print(f"error: {_in_words(problem)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def settings_of(flags: Flags) -> BrokerSettings:
    """Settings from the config file, then --set, then the flags; what comes later wins."""
    from moldau.broker.settings.broker import BrokerSettings
    from moldau.broker.settings.security import is_secret
    from moldau.settings import definitions

    texts: dict[str, str] = {}
    for path in flags.get("--config", ()):
        texts |= read_config(path)
    for pair in flags.get("--set", ()):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise WrongUsage(f"--set {pair}: expected KEY=VALUE")
        texts[key.strip()] = value.strip()
        if value and is_secret(key.strip(), definitions(BrokerSettings)):
            print(
                f"warning: every user of this machine can read --set {key.strip()}; put it into a "
                "file for --config that only you can read",
                file=sys.stderr,
            )
    for flag, key in SETTING_OF_FLAG.items():
        if flag in flags:
            texts[key] = flags[flag][0]
    shared = flags.get("--authority", [""])[0]
    if "--secure" in flags:
        texts = _secured(texts, shared)
    elif shared:
        raise WrongUsage("--authority is for --secure: give both")
    return BrokerSettings.parse(texts)


def _secured(texts: dict[str, str], shared: str) -> dict[str, str]:
    """Lock a broker with what lies in a folder, made at its first start.

    That is the folder that it shares with others, or one beside its data folder.
    """
    from pathlib import Path

    from moldau.broker.settings.broker import BrokerSettings
    from moldau.local.secure import SecureFolder

    listen, advertise = texts.pop("listeners", ""), texts.pop("advertised.listeners", "")
    listen = listen or BrokerSettings().listeners
    for text in (listen, advertise):
        if "://" in text or "," in text:
            raise WrongUsage(f"--secure defines the only listener; expected HOST:PORT, not {text}")
    plain = BrokerSettings.parse(texts)
    data = Path(plain.log_dirs)
    folder = SecureFolder(Path(shared) if shared else data.with_name(f"{data.name}-secure"))
    clustered = bool(plain.zookeeper_connect)
    made = folder.broker_settings(
        plain.node_id, listen, advertise, zookeeper=clustered, http=bool(plain.http_listen)
    )
    address = advertise or listen.replace("0.0.0.0", "127.0.0.1")
    path = folder.add_broker(plain.node_id, "" if address.endswith(":0") else address)
    print(f"locked: clients need {path}", file=sys.stderr)
    print(f"  try: moldau topics list --client-config {path}", file=sys.stderr)
    return made | texts


def read_config(path: str) -> dict[str, str]:
    """Return the settings of a file: TOML if its name ends in .toml, else lines of KEY=VALUE."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as problem:
        raise WrongUsage(f"--config {path}: could not be read: {problem}") from None
    if path.endswith(".toml"):
        import tomllib

        try:
            return dict(_flatten(tomllib.loads(text), path))
        except tomllib.TOMLDecodeError as problem:
            raise WrongUsage(f"{path}: {problem}") from None
    try:
        return parse_properties(text)
    except ValueError as problem:
        raise WrongUsage(f"{path}, {problem}") from None


def _flatten(table: Mapping[str, Any], path: str, prefix: str = "") -> list[tuple[str, str]]:
    """`[log] segment.bytes = 1` and `"log.segment.bytes" = 1` are the same setting."""
    found = []
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            found += _flatten(value, path, f"{name}.")
        elif isinstance(value, bool):
            found.append((name, "true" if value else "false"))
        elif isinstance(value, list):
            found.append((name, ",".join(map(str, value))))
        elif isinstance(value, str | int | float):
            found.append((name, str(value)))
        else:
            raise WrongUsage(f"{path}: {name} cannot be a {type(value).__name__}")
    return found


def _in_words(problem: OSError) -> str:
    import errno

    from moldau.broker.net.listener import CannotListen

    if isinstance(problem, CannotListen):
        host, port, flag = problem.host, problem.port, problem.flag
        if problem.errno == errno.EADDRINUSE:
            return (
                f"{host}:{port} is in use by another process\n  try: stop that process, or choose "
                f"another address with {flag} HOST:PORT (port 0: any free one)"
            )
        if problem.errno == errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine\n  try: {flag} 0.0.0.0:{port}"
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{problem}\n  try: another folder with --data-dir"
    return str(problem)
