"""Tables of the documentation, written from the definitions in the code.

    python docs/generate.py           rewrites docs/*.md
    python docs/generate.py --check   only says whether they are up to date

A table stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kio.schema.index import api_key_map

from moldau.broker.api import registry
from moldau.broker.api.cluster.api_versions import served_versions
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.security import SecuritySettings
from moldau.log.config import LogConfig
from moldau.settings import INT_MAX, LONG_MAX, Setting, definitions
from moldau.wire.apis import Api

DOCS = Path(__file__).parent
# The outcomes of `python -m tests.spark.parity`.
PARITY = DOCS / "spark-parity.json"
BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
BIG = {INT_MAX: "2^31 - 1", LONG_MAX: "2^63 - 1"}
# The beginning of the text of a setting that is accepted and has no effect.
WITHOUT_EFFECT = "Accepted for compatibility"
# The purposes of Kafka's requests, by their keys. A row of the table of missing requests disappears
# when its requests are answered, and a request that is in no row stops the generator.
PURPOSES: dict[str, tuple[int, ...]] = {
    "transactions": (24, 25, 26, 27, 28, 61, 65, 66),
    "SCRAM credentials": (50, 51),
    "access control": (29, 30, 31),
    "delegation tokens": (38, 39, 40, 41),
    "quotas": (48, 49),
    "the consumer groups of KIP-848": (68, 69),
    "share groups (KIP-932)": (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),
    "streams groups (KIP-1071)": (88, 89),
    "client metrics (KIP-714)": (71, 72),
    "KRaft: a cluster here meets in ZooKeeper": (
        *(52, 53, 54, 56, 57, 59, 62, 63, 64, 67, 70, 73, 80, 81, 82),
    ),
}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def shown_default(setting: Setting) -> str:
    if setting.default in BIG and not isinstance(setting.default, bool):
        return BIG[setting.default]
    text = setting.format(setting.default)
    return f"`{text}`" if text else "(empty)"


def allowed(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(choice or "(empty)" for choice in setting.choices)
    return setting.kind


def broker_settings() -> str:
    of_security = definitions(SecuritySettings)
    return settings_table(
        {
            name: each
            for name, each in definitions(BrokerSettings).items()
            if name not in of_security
        }
    )


def security_settings() -> str:
    return settings_table(definitions(SecuritySettings))


def settings_table(settings: Mapping[str, Setting]) -> str:
    return table(
        ("setting", "default", "type", "meaning"),
        (
            (f"`{name}`", shown_default(setting), allowed(setting), setting.doc)
            for name, setting in settings.items()
        ),
    )


def topic_settings() -> str:
    return table(
        ("setting", "default", "type", "meaning", "the broker's name for the default"),
        (
            (
                f"`{name}`",
                shown_default(setting),
                allowed(setting),
                setting.doc,
                ", ".join(f"`{synonym}`" for synonym, _ in setting.synonyms),
            )
            for name, setting in definitions(LogConfig).items()
        ),
    )


def settings_without_effect() -> str:
    settings = {**definitions(BrokerSettings), **definitions(LogConfig)}
    names = [name for name, each in settings.items() if each.doc.startswith(WITHOUT_EFFECT)]
    return ", ".join(f"`{name}`" for name in names) + "\n"


def apis() -> str:
    registry.load()
    return table(
        ("key", "API", "versions"),
        (
            (str(key), spelled(Api(key).name), f"{first}-{last}")
            for key, (first, last) in sorted(served_versions(to_brokers=True).items())
        ),
    )


def missing_apis() -> str:
    registry.load()
    missing = api_key_map.keys() - served_versions(to_brokers=True).keys()
    unnamed = missing.difference(*PURPOSES.values())
    if unnamed:
        raise ValueError(f"PURPOSES has no row for the requests {sorted(unnamed)}")
    names = {key: spelled(api_key_map[key]) for key in sorted(missing)}
    rows = [
        (purpose, ", ".join(f"{name} ({key})" for key, name in names.items() if key in keys))
        for purpose, keys in PURPOSES.items()
    ]
    if not any(name.startswith("ssl.") for name in definitions(BrokerSettings)):
        rows.append(("encryption (TLS)", "-"))
    return table(("for", "requests"), (row for row in rows if row[1]))


def spelled(name: str) -> str:
    """An API's name as Kafka spells it, from one with underscores."""
    return "".join(word.capitalize() for word in name.split("_"))


def commands() -> list[tuple[str, Any]]:
    """Every command that does something, as (`topics create`, its definition)."""
    from typer.main import get_command

    from moldau.cli.app import InOrder, app

    root: Any = get_command(app)
    found = []
    for name in InOrder.ORDER:
        command = root.commands[name]
        inner = getattr(command, "commands", None)
        if inner is None:
            found.append((name, command))
        else:
            found += [(f"{name} {word}", each) for word, each in inner.items()]
    return found


def command_line() -> str:
    sections = []
    for name, command in commands():
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        usage = " ".join(["moldau", name, *map(_argument, arguments)])
        about = " ".join((command.help or "").split())
        section = f"### `{usage}`\n\n{about}\n"
        if options:
            section += "\n" + table(
                ("option", "meaning"), ((_option(p), _meaning(p)) for p in options)
            )
        sections.append(section)
    return "\n" + "\n".join(sections) + "\n"


def _argument(parameter: Any) -> str:
    text = f"{parameter.metavar}..." if parameter.nargs == -1 else str(parameter.metavar)
    return text if parameter.required else f"[{text}]"


def _option(parameter: Any) -> str:
    words = [*parameter.opts]
    if not parameter.is_flag:
        words.append(parameter.metavar or "VALUE")
    return f"`{' '.join(words)}`".replace("|", "\\|")


def _meaning(parameter: Any) -> str:
    text = str(parameter.help or "")
    if parameter.default and not parameter.is_flag:
        default = getattr(parameter.default, "value", parameter.default)
        text += f" Default: `{default}`."
    if parameter.envvar:
        text += f" Or `{parameter.envvar}`."
    return text


def console_api() -> str:
    """Return the calls of the console's API, as its OpenAPI document has them."""
    from moldau.console.api.modules import MODULES
    from moldau.console.api.openapi import document

    assert MODULES
    parts: dict[str, list[tuple[str, str]]] = {}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            call = f"`{method.upper()} {path.removeprefix('/')}`"
            parts.setdefault(operation["tags"][0], []).append((call, operation["summary"]))
    return "\n".join(
        f"### {tag.capitalize()}\n\n{table(('call', 'what it does'), rows)}"
        for tag, rows in parts.items()
    )


def spark_parity() -> str:
    """Return what Spark's own connector and ours do, as far as it was tried."""
    found = json.loads(PARITY.read_text("utf-8"))
    sections = [f"Tried with Spark {found['spark']} and {found['connector']}.\n"]
    for part in found["parts"]:
        rows = [
            (each["feature"], each["kafka"], _of_ours(each), each["note"])
            for each in part["features"]
        ]
        columns = (part["title"], "Spark's own", "Moldau", "instead")
        sections.append(table(columns, rows))
    return "\n" + "\n".join(sections) + "\n"


def _of_ours(row: Mapping[str, Any]) -> str:
    return f"{row['moldau']} (**Spark denies it**)" if row["denied"] else str(row["moldau"])


TABLES: dict[str, Callable[[], str]] = {
    "console-api": console_api,
    "broker-settings": broker_settings,
    "security-settings": security_settings,
    "topic-settings": topic_settings,
    "settings-without-effect": settings_without_effect,
    "apis": apis,
    "missing-apis": missing_apis,
    "command-line": command_line,
    "spark-parity": spark_parity,
}


def renewed(text: str) -> str:
    """A page with every table in it written anew."""
    return BLOCK.sub(lambda block: block[1] + TABLES[block[2]]() + block[3], text)


def stale_pages() -> dict[Path, str]:
    """The pages that are not as they should be, with what they should be."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))}
    return {page: new for page, text in pages.items() if (new := renewed(text)) != text}


def main() -> int:
    stale = stale_pages()
    if "--check" in sys.argv[1:]:
        return 1 if stale else 0
    for page, text in stale.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
