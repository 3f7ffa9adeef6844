"""A client for any registry with Confluent's API: ours, Confluent's, or another."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from moldau.client.avro import AvroSchema
from moldau.schemas.catalog import SchemaCatalog
from moldau.schemas.errors import IncompatibleSchema, SchemaError, SchemaNotFound
from moldau.schemas.levels import Level
from moldau.schemas.registered import RegisteredSchema
from moldau.schemas.registry.names import beside
from moldau.schemas.registry_settings import PREFIX, RegistrySettings
from moldau.schemas.schema import Dependency, Reference, SchemaType
from moldau.wire.apis import ORIGIN, RIGHTS

TIMEOUT_S = 30.0
_JSON = "application/vnd.schemaregistry.v1+json"


class RegistryClient(SchemaCatalog):
    """Subjects, versions and ids, kept by a registry over HTTP.

    It does what a `SchemaStore` does, so serializers take either, and knows schemas of all types.
    `user` is NAME:PASSWORD, which may also stand in the URL, `token` a bearer token, `ca_file` the
    certificates to trust instead of the system's, `certificate_file` and `key_file` the client's
    own; `tls` is a context in place of these files. `origin` gives a broker's token for the address
    of somebody else for whom we ask. Any thread may use it.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        key_password: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        origin: Callable[[], str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.username and user is None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        # Messages show the URL.
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        self._url = urlunsplit(bare).rstrip("/")
        self._timeout_s = timeout_s
        self._origin = origin
        self._headers = {"Content-Type": _JSON, "Accept": f"{_JSON}, application/json"}
        if user is not None:
            coded = base64.b64encode(user.encode()).decode()
            self._headers["Authorization"] = f"Basic {coded}"
        elif token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = tls
        if ca_file is not None or certificate_file is not None:
            self._tls = _context(ca_file, certificate_file, key_file, key_password)
        self._lock = threading.Lock()
        self._named: dict[int | str, RegisteredSchema] = {}

    @classmethod
    def of(
        cls,
        settings: RegistrySettings | Mapping[str, str],
        *,
        user: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> RegistryClient:
        """Connect by the names of Confluent's clients: `url`, `ssl.ca.location`,
        `basic.auth.user.info` and so on, each with or without `schema.registry.` before it.

        `user` is who asks if they do not say. InvalidSetting for one that there is not.
        """
        if not isinstance(settings, RegistrySettings):
            settings = RegistrySettings.parse(settings)
        return cls(
            settings.url,
            user=settings.basic_auth_user_info or user,
            token=settings.bearer_auth_token or None,
            ca_file=settings.ssl_ca_location or None,
            certificate_file=settings.ssl_certificate_location or None,
            key_file=settings.ssl_key_location or None,
            key_password=settings.ssl_key_password or None,
            timeout_s=timeout_s,
        )

    def close(self) -> None:
        """Nothing is held between two requests; here so that a SchemaStore can be replaced."""

    def register(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema:
        body = _body(schema, kind, references)
        path = f"/subjects/{_quoted(subject)}"
        try:
            self._ask("POST", f"{path}/versions", body)
        except _Refused as refusal:
            if refusal.status != 409:
                raise
            raise IncompatibleSchema(subject, self.mode(subject), refusal.reason) from None
        return self._registered(self._ask("POST", path, body))

    def find(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> RegisteredSchema | None:
        body = _body(schema, kind, references)
        try:
            return self._registered(self._ask("POST", f"/subjects/{_quoted(subject)}", body))
        except SchemaNotFound:
            return None

    def problem(
        self,
        subject: str,
        schema: AvroSchema,
        kind: SchemaType = SchemaType.AVRO,
        references: Iterable[Reference] = (),
    ) -> str | None:
        path = f"/compatibility/subjects/{_quoted(subject)}/versions"
        body = _body(schema, kind, references)
        # Asked for reasons, a registry takes what is no schema for one that is not compatible.
        if self._ask("POST", path, body)["is_compatible"]:
            return None
        answer = self._ask("POST", f"{path}?verbose=true", body)
        return "\n".join(answer.get("messages") or ()) or "it is not compatible"

    def by_id(self, schema_id: int) -> RegisteredSchema:
        return self._fetched(schema_id, f"/schemas/ids/{schema_id}", schema_id)

    def by_guid(self, guid: str) -> RegisteredSchema:
        return self._fetched(guid, f"/schemas/guids/{guid}", 0)

    def _fetched(self, name: int | str, path: str, schema_id: int) -> RegisteredSchema:
        found = self._named.get(name)
        if found is None:
            answer = self._ask("GET", path)
            found = self._registered({"subject": "", "version": 0, "id": schema_id, **answer})
            with self._lock:
                self._named[name] = found
        return found

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        path = f"/subjects/{_quoted(subject)}/versions/{version or 'latest'}"
        return self._registered(self._ask("GET", path))

    def versions(self, subject: str) -> list[RegisteredSchema]:
        return [self.version(subject, number) for number in self.version_numbers(subject)]

    def version_numbers(self, subject: str) -> list[int]:
        """Return the versions of a subject; none if there is no such subject."""
        try:
            return sorted(self._ask("GET", f"/subjects/{_quoted(subject)}/versions"))
        except SchemaNotFound:
            return []

    def subjects(self) -> list[str]:
        return sorted(self._ask("GET", "/subjects"))

    def operations(self, subject: str | None = None) -> list[str] | None:
        """Return what we may do with a subject, or with any, in Kafka's words: Write to register,
        Delete, AlterConfigs; None where the registry does not tell."""
        path = "/subjects?limit=1" if subject is None else f"/subjects/{_quoted(subject)}/versions"
        _, headers = self._answered("GET", path)
        told = headers.get(f"x-{RIGHTS}")
        return None if told is None else [each for each in told.split(",") if each]

    def mode(self, subject: str | None = None) -> Level:
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        answer = self._ask("GET", path)
        return Level(answer.get("compatibilityLevel") or answer["compatibility"])

    def write_mode(self, subject: str) -> str:
        """Return whether a subject can be written to: READWRITE, READONLY or IMPORT."""
        path = f"/mode/{_quoted(subject)}?defaultToGlobal=true"
        try:
            return str(self._ask("GET", path)["mode"])
        except SchemaNotFound:
            # Not every registry has modes.
            return "READWRITE"

    def set_mode(self, mode: Level | str, subject: str | None = None) -> None:
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._ask("PUT", path, {"compatibility": Level(str(mode).upper())})

    def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Delete a subject or one of its versions; permanently only what has been deleted before.

        Returns the versions that were deleted.
        """
        path = f"/subjects/{_quoted(subject)}"
        if version is not None:
            path += f"/versions/{version}"
        query = f"?{urlencode({'permanent': 'true'})}" if permanent else ""
        answer = self._ask("DELETE", path + query)
        return list(answer) if isinstance(answer, list) else [int(answer)]

    def _registered(self, answer: dict[str, Any]) -> RegisteredSchema:
        references = tuple(
            Reference(each["name"], each["subject"], each["version"])
            for each in answer.get("references") or ()
        )
        return RegisteredSchema(
            answer["subject"],
            answer["version"],
            answer["id"],
            answer["schema"],
            SchemaType(answer.get("schemaType") or "AVRO"),
            references,
            tuple(self._dependencies(references, answer["subject"], {}).values()),
            answer.get("guid") or "",
        )

    def _dependencies(
        self, references: Iterable[Reference], subject: str, found: dict[str, Dependency]
    ) -> dict[str, Dependency]:
        """Fetch the schemas that references name, each behind those that it refers to itself."""
        for each in references:
            if each.name in found:
                continue
            # In its place from now on, so that a ring ends here.
            found[each.name] = Dependency(each.name, "")
            meant = beside(subject, each.subject)
            path = f"/subjects/{_quoted(meant)}/versions/{each.version}?deleted=true"
            answer = self._ask("GET", path)
            inner = [
                Reference(one["name"], one["subject"], one["version"])
                for one in answer.get("references") or ()
            ]
            self._dependencies(inner, meant, found)
            del found[each.name]
            found[each.name] = Dependency(each.name, answer["schema"])
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        return self._answered(method, path, body)[0]

    def _answered(
        self, method: str, path: str, body: object = None
    ) -> tuple[Any, Mapping[str, str]]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers, method=method)
        if self._origin is not None:
            request.add_header(f"x-{ORIGIN}", self._origin())
        try:
            with urllib.request.urlopen(
                request, timeout=self._timeout_s, context=self._tls
            ) as answer:
                return json.load(answer), answer.headers
        except urllib.error.HTTPError as problem:
            refusal = _refusal(problem)
            if problem.code == 401:
                where = "basic.auth.user.info or bearer.auth.token"
                raise SchemaError(
                    f"the registry at {self._url} rejected our credentials ({where}): {refusal}"
                ) from None
            raise refusal from None
        except (OSError, ValueError) as problem:
            raise SchemaError(f"the registry at {self._url} does not answer: {problem}") from None


def _context(
    ca_file: str | None, certificate_file: str | None, key_file: str | None, password: str | None
) -> ssl.SSLContext:
    """Return the context of TLS; SchemaError names the file that cannot be used."""
    name, path = "ssl.ca.location", ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if certificate_file is not None:
            name, path = "ssl.certificate.location", certificate_file
            # Without a password OpenSSL would ask for it on the terminal.
            context.load_cert_chain(certificate_file, key_file, lambda: password or "")
    except ssl.SSLError as problem:
        reason = (problem.reason or "it is not PEM").replace("_", " ").lower()
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
    else:
        return context
    raise SchemaError(f"{PREFIX}{name}: {path} cannot be used: {reason}")


class _Refused(SchemaError):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def _refusal(problem: urllib.error.HTTPError) -> SchemaError:
    try:
        reason = str(json.load(problem)["message"])
    except (ValueError, KeyError, TypeError):
        reason = f"HTTP {problem.code}: {problem.reason}"
    return SchemaNotFound(reason) if problem.code == 404 else _Refused(problem.code, reason)


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _body(schema: AvroSchema, kind: SchemaType, references: Iterable[Reference]) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    if kind is SchemaType.AVRO and text.strip().isidentifier():
        text = json.dumps(text.strip())
    body: dict[str, Any] = {"schema": text}
    if kind is not SchemaType.AVRO:
        body["schemaType"] = kind.value
    listed = [
        {"name": each.name, "subject": each.subject, "version": each.version} for each in references
    ]
    return {**body, "references": listed} if listed else body
