"""A client's config file: Kafka's properties of security, in a file that only its owner reads.

Commands get its path by `--client-config`, programs by `MOLDAU_CLIENT_CONFIG`: a password has no
place on a command line, which everybody on the machine can see.
"""

from __future__ import annotations

import os
from pathlib import Path

from moldau.security.client import ClientSecurity
from moldau.security.references import resolve_property, with_absolute_paths
from moldau.settings import InvalidSetting, parse_properties

CLIENT_CONFIG_VARIABLE = "MOLDAU_CLIENT_CONFIG"


def client_properties(path: str | None = None) -> dict[str, str]:
    """Return the properties of a file, or of the one that the environment names; none without.

    Their values may refer to the environment and to other files (see `references`).

    InvalidSetting for a file that cannot be read.
    """
    path = path or os.environ.get(CLIENT_CONFIG_VARIABLE)
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            properties = parse_properties(file.read())
        folder = Path(path).resolve().parent
        return {
            name: resolve_property(name, with_absolute_paths(text, folder))
            for name, text in properties.items()
        }
    except OSError as problem:
        reason = f"{path} could not be read: {problem.strerror}"
    except UnicodeDecodeError:
        reason = f"{path} is not text"
    except ValueError as problem:
        reason = f"{path}, {problem}"
    raise InvalidSetting("client config", None, reason)


def client_user() -> str:
    """Return whom the file of the environment logs in as, by a password; empty if it does not say.

    InvalidSetting for a file that cannot be read.
    """
    found = client_security()
    return "" if found is None or not found.has_sasl else found.login().get("username", "")


def client_security(path: str | None = None) -> ClientSecurity | None:
    """Return the security that such a file asks for, None if it asks for none."""
    properties = client_properties(path)
    return ClientSecurity.parse(properties) if properties else None
