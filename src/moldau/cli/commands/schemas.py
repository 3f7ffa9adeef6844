"""`moldau schemas`: list, show, register, check, delete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.avro import connect_store
from moldau.cli.http_login import REGISTRY_VARIABLE, registry_address
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cli.views.prompt import confirm

if TYPE_CHECKING:
    from moldau.schemas import RegisteredSchema, RegistryClient
    from moldau.schemas.catalog import SchemaCatalog
    from moldau.schemas.schema import Reference, SchemaType

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, register, check and delete schemas.",
)

_SUFFIXES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_REFERENCE = re.compile(r"(?P<name>.+)=(?P<subject>.+):(?P<version>[0-9]{1,9})")

Registry = Annotated[
    str | None,
    typer.Option(
        "--registry",
        envvar=REGISTRY_VARIABLE,
        metavar="URL",
        callback=registry_address,
        help="Schema registry: a broker's --http address, or any with Confluent's API. Without "
        "it, the schemas are read from the brokers, and only Avro can be registered. Its "
        "login is in the client's config.",
    ),
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Subject, such as orders-value.")]
File = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The schema.")
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="avro|json|protobuf",
        help="Schema type. Default: by the file's extension: .avsc, .json or .proto.",
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one refers to; may be repeated.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@contextmanager
def _connected(registry: str | None, bootstrap: str) -> Iterator[SchemaCatalog]:
    """Connect to the registry, or to the brokers; ClientError becomes a failure."""
    from moldau.client.errors import ClientError

    try:
        if registry is None:
            with connect_store(bootstrap) as store:
                yield store
        else:
            yield _registry(registry)
    except ClientError as problem:
        raise Failure(str(problem)) from None


def _registry(url: str) -> RegistryClient:
    """Return the registry as the client's config has it; InvalidSetting becomes a failure.

    If it says nothing, one over HTTPS is asked as the brokers are.
    """
    from moldau.schemas import RegistryClient
    from moldau.schemas.registry_settings import PREFIX, registry_properties
    from moldau.security.client_config import client_properties, client_security
    from moldau.security.key_material import TlsError
    from moldau.settings import InvalidSetting

    try:
        own = registry_properties(client_properties())
        security = None if own or not url.startswith("https://") else client_security()
        if security is None:
            return RegistryClient.of(own | {f"{PREFIX}url": url})
        return RegistryClient(url, user=security.http_login(url) or None, tls=security.context())
    except (InvalidSetting, TlsError) as problem:
        raise Failure(str(problem)) from None


@app.command("list")
def list_subjects(
    registry: Registry = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """List all subjects with their versions, the latest schema's type and id, and their level."""
    with _connected(registry, bootstrap) as schemas:
        rows = []
        for subject in schemas.subjects():
            versions = schemas.versions(subject)
            if versions:
                last = versions[-1]
                level = schemas.mode(subject).value
                rows.append((subject, len(versions), last.version, last.id, last.type.value, level))
    names = ("subject", "versions", "latest", "id", "type", "compatibility")
    if as_json:
        show_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        show_table([name.upper() for name in names], rows)
    else:
        show("no schemas yet; `moldau schemas register` adds one", "dim", stderr=True)


@app.command("show")
def show_schema(
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="Subject, such as orders-value.")
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Version. Default: the latest.")
    ] = None,
    schema_id: Annotated[
        int | None, typer.Option("--id", metavar="N", help="Instead of a subject: a schema's id.")
    ] = None,
    registry: Registry = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Print a schema."""
    if (subject is None) == (schema_id is None):
        raise typer.BadParameter("give either a SUBJECT or --id")
    with _connected(registry, bootstrap) as schemas:
        if schema_id is not None:
            found = schemas.by_id(schema_id)
        else:
            found = schemas.version(subject or "", version)
    if as_json:
        show_json(_described(found))
        return
    print(found.text if found.type.value == "PROTOBUF" else _pretty(found.text))


@app.command()
def register(
    subject: Subject,
    file: File,
    kind: Kind = None,
    reference: References = None,
    registry: Registry = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Register a schema under a subject, and print its version and id."""
    given = _given(file, kind, reference)
    with _connected(registry, bootstrap) as schemas:
        found = schemas.register(subject, *given)
    if as_json:
        show_json(_described(found))
    else:
        show(f"{subject} version {found.version} has the id {found.id}")


@app.command()
def check(
    subject: Subject,
    file: File,
    kind: Kind = None,
    reference: References = None,
    registry: Registry = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Check whether a schema can be registered under a subject; exit status 1 if not."""
    given = _given(file, kind, reference)
    with _connected(registry, bootstrap) as schemas:
        problem = schemas.problem(subject, *given)
    if as_json:
        show_json({"subject": subject, "compatible": problem is None, "problem": problem})
    elif problem is None:
        show(f"{file} is compatible with {subject}")
    else:
        show(problem, "yellow", stderr=True)
    if problem is not None:
        raise typer.Exit(1)


@app.command()
def delete(
    subject: Subject,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this version.")
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option(
            "--permanent", help="Delete permanently what was deleted before without this option."
        ),
    ] = False,
    yes: Yes = False,
    registry: Registry = None,
    as_json: Json = False,
) -> None:
    """Delete a subject or one of its versions. Its ids stay readable until --permanent."""
    from moldau.client.errors import ClientError

    if registry is None:
        raise Failure("only a registry can delete schemas", "give --registry URL")
    what = subject if version is None else f"version {version} of {subject}"
    if permanent:
        confirm(f"Delete {what} permanently?", yes)
    try:
        versions = _registry(registry).delete(subject, version, permanent=permanent)
    except ClientError as problem:
        raise Failure(str(problem)) from None
    if as_json:
        show_json({"subject": subject, "deleted": versions, "permanent": permanent})
    else:
        show(f"deleted from {subject}: version {', '.join(map(str, versions))}")


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"{file} cannot be read: {problem}", param_hint="FILE") from None


def _given(
    file: Path, kind: str | None, references: list[str] | None
) -> tuple[str, SchemaType, list[Reference]]:
    """Return a schema as it is registered: its text, type and references."""
    chosen, named = _type(file, kind), _references(references)
    return _read(file), chosen, named


def _type(file: Path, kind: str | None) -> SchemaType:
    from moldau.schemas.schema import SchemaType

    name = kind.upper() if kind else _SUFFIXES.get(file.suffix, "AVRO")
    if name not in SchemaType.__members__:
        raise typer.BadParameter(f"there is no type {kind!r}", param_hint="--type")
    return SchemaType(name)


def _references(given: list[str] | None) -> list[Reference]:
    from moldau.schemas.schema import Reference

    found = []
    for text in given or ():
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise typer.BadParameter(
                f"{text!r} is not NAME=SUBJECT:VERSION", param_hint="--reference"
            )
        found.append(Reference(match["name"], match["subject"], int(match["version"])))
    return found


def _described(found: RegisteredSchema) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "guid": found.guid,
        "type": found.type.value,
        "schema": found.text,
        "references": [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in found.references
        ],
    }


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
