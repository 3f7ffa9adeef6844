"""`moldau broker`: one broker in the foreground.

This module is all that a starting broker imports of the command line, so it imports nothing heavy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moldau.settings import InvalidSetting

if TYPE_CHECKING:
    from moldau.broker.settings import BrokerSettings

Flags = dict[str, list[str]]

# The flags that are short for one setting.
SETTING_OF_FLAG = {
    "--data-dir": "log.dirs",
    "--listen": "listeners",
    "--advertise": "advertised.listeners",
    "--id": "node.id",
    "--zookeeper": "zookeeper.connect",
}
REPEATABLE = frozenset(("--set",))
ALL_FLAGS = frozenset((*SETTING_OF_FLAG, "--config", "--set"))

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

    from moldau.broker.server import run
    from moldau.cluster.store import StoreError
    from moldau.log.errors import LogError

    try:
        run(settings)
    except (LogError, StoreError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as problem:
        print(f"error: {_in_words(problem)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def settings_of(flags: Flags) -> BrokerSettings:
    """Settings from the config file, then --set, then the flags; what comes later wins."""
    from moldau.broker.settings import BrokerSettings

    texts: dict[str, str] = {}
    for path in flags.get("--config", ()):
        texts |= read_config(path)
    for pair in flags.get("--set", ()):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise WrongUsage(f"--set {pair}: expected KEY=VALUE")
        texts[key.strip()] = value.strip()
    for flag, key in SETTING_OF_FLAG.items():
        if flag in flags:
            texts[key] = flags[flag][0]
    return BrokerSettings.parse(texts)


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
    return parse_properties(text, path)


def parse_properties(text: str, path: str) -> dict[str, str]:
    """Return the settings of KEY=VALUE lines, as in Kafka's server.properties."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content[0] in "#!":
            continue
        key, equals, value = content.partition("=")
        if not equals or not key.strip():
            raise WrongUsage(f"{path}, line {number}: {content!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


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
        host, port = problem.host, problem.port
        if problem.errno == errno.EADDRINUSE:
            return (
                f"{host}:{port} is taken by another process\n  try: stop that one, "
                "or choose another address with --listen HOST:PORT (port 0: any "
                "free one)"
            )
        if problem.errno == errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine\n  try: --listen 0.0.0.0:{port}"
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{problem}\n  try: another folder with --data-dir"
    return str(problem)
