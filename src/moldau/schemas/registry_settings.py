"""The settings of a connection to a schema registry, under the names of Confluent's clients."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from moldau.security.references import resolve
from moldau.settings import InvalidSetting

PREFIX = "schema.registry."
# What clients of Kafka give besides, without the prefix.
_BARE = ("basic.auth.", "bearer.auth.")
_SOURCES = ("USER_INFO", "URL")


class RegistrySettings(msgspec.Struct, frozen=True, rename=lambda name: name.replace("_", ".")):
    """Where a registry is, whom to trust, and who asks. Certificates and keys are PEM files.

    Texts may be references (see `references`), which `resolved` follows. So it can be shown and
    written down with those, and never holds a secret until it is used.
    """

    url: str
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
    basic_auth_user_info: str = ""
    bearer_auth_token: str = ""

    def __repr__(self) -> str:
        # The others may be secrets, and the URL may hold one.
        return "RegistrySettings(...)"

    @property
    def has_login(self) -> bool:
        """Whether they say who asks, by a password, a token or a certificate."""
        given = self.basic_auth_user_info, self.bearer_auth_token, self.ssl_certificate_location
        return any(given) or "@" in urlsplit(self.url).netloc

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> RegistrySettings:
        """Return what these properties mean, each with or without `schema.registry.` before it.

        InvalidSetting for one that there is not, and without a `url`.
        """
        known = cls.__struct_encode_fields__
        texts = {}
        for given, text in properties.items():
            name = given.removeprefix(PREFIX)
            if name == "basic.auth.credentials.source":
                if text.upper() not in _SOURCES:
                    reason = f"only {' and '.join(_SOURCES)} are supported"
                    raise InvalidSetting(given, text, reason)
            elif name in known:
                texts[name] = text
            else:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise InvalidSetting(given, None, f"there is no such registry setting{hint}")
        if not texts.get("url"):
            raise InvalidSetting(f"{PREFIX}url", None, "the address of the registry is missing")
        if texts.get("ssl.key.location") and not texts.get("ssl.certificate.location"):
            reason = "a key needs ssl.certificate.location as well"
            raise InvalidSetting(f"{PREFIX}ssl.key.location", None, reason)
        return cls(**{name.replace(".", "_"): text for name, text in texts.items()})

    def resolved(self) -> RegistrySettings:
        """Return the settings with what they refer to; BrokenReference if that is not there."""
        texts = {name: resolve(getattr(self, name)) for name in self.__struct_fields__}
        return RegistrySettings(**texts)


def registry_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those of a client's properties that are about its registry."""
    return {name: text for name, text in properties.items() if name.startswith((PREFIX, *_BARE))}
