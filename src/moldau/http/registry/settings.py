"""Config and mode: of one subject, of a context (`:.name:`), or of all."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.http.registry.admission import plain
from moldau.http.registry.call import Call, Operation
from moldau.http.registry.errors import (
    foreign_alias,
    invalid_level,
    invalid_mode,
    lacks_cluster,
    no_subject_level,
    no_subject_mode,
    not_permitted,
    reference_exists,
    subject_not_found,
)
from moldau.http.registry.registry import Write
from moldau.http.registry.rules import check_rules
from moldau.schemas.levels import Level
from moldau.schemas.registry.names import context_of, named, unqualified
from moldau.schemas.registry.records import (
    Config,
    ConfigKey,
    ModeKey,
    ModeValue,
    NoopKey,
    SchemaKey,
)
from moldau.schemas.registry.state import (
    DEFAULT_LEVEL,
    FORWARD,
    IMPORT,
    MODES,
    READWRITE,
    RegistryState,
    Version,
)


class ConfigRequest(msgspec.Struct, rename="camel"):
    """The body of a change. What is left out stays as it is."""

    compatibility: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_level: str | msgspec.UnsetType | None = msgspec.UNSET
    alias: str | msgspec.UnsetType | None = msgspec.UNSET
    normalize: bool | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_group: str | msgspec.UnsetType | None = msgspec.UNSET
    default_metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    override_metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    default_rule_set: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    override_rule_set: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class ModeRequest(msgspec.Struct):
    mode: str | None = None


def _subject(call: Call) -> str | None:
    """Return the subject or context (`:.name:`) that is meant; None for all."""
    name = named(call.context, call.args[0] if call.args else "")
    return call.subject(name) if name else None


async def get_config(call: Call) -> Any:
    subject = _subject(call)
    found = call.state.configs.get(subject)
    if found is None and subject is not None and not call.flag("defaultToGlobal"):
        raise no_subject_level(subject)
    found = call.state.config(subject)
    level = found.compatibility_level or call.state.level(subject)
    return _described(found, level)


async def put_config(call: Call) -> Any:
    subject = _subject(call)
    request = call.body(ConfigRequest)
    alias = request.alias
    rights = call.rights
    if isinstance(alias, str) and alias and rights is not None and not rights.may_alter(alias):
        # What others send to this subject, with their rights, would arrive at that one.
        raise foreign_alias(alias)

    for part in (request.default_metadata, request.override_metadata,
                 request.default_rule_set, request.override_rule_set):  # fmt: skip
        # What new schemas get from here is judged here, and not again with each of them.
        plain(part if isinstance(part, dict) else None)
    for rules in (request.default_rule_set, request.override_rule_set):
        check_rules(rules if isinstance(rules, dict) else None)

    async def decide() -> tuple[list[Write], Config]:
        _check_changeable(call, subject)
        changes = {
            name: value
            for name, value in msgspec.structs.asdict(request).items()
            if value is not msgspec.UNSET and not name.startswith("compatibility_level")
        }
        given = changes.pop("compatibility", request.compatibility_level)
        if given is not msgspec.UNSET:
            changes["compatibility_level"] = None if given is None else _level(given)
        config = msgspec.structs.replace(call.state.configs.get(subject, Config()), **changes)
        return [(ConfigKey(subject), config)], config

    await call.registry.write(decide)
    return {
        name: value for name, value in msgspec.to_builtins(request).items() if value is not None
    }


async def delete_config(call: Call) -> Any:
    subject = _subject(call)

    async def decide() -> tuple[list[Write], Config]:
        _check_changeable(call, subject)
        found = call.state.configs.get(subject)
        if found is None and subject is not None:
            raise subject_not_found(subject)
        return ([] if found is None else [(ConfigKey(subject), None)]), found or Config()

    found = await call.registry.write(decide)
    return _described(found, found.compatibility_level or DEFAULT_LEVEL)


def _described(config: Config, level: Level) -> dict[str, Any]:
    return {"compatibilityLevel": level, **msgspec.to_builtins(config)}


def _level(given: object) -> Level:
    try:
        return Level(str(given).upper())
    except ValueError:
        raise invalid_level(given) from None


def _check_changeable(call: Call, subject: str | None) -> None:
    if call.state.mode(subject) not in (READWRITE, IMPORT):
        where = f"Subject {subject}" if subject else "The registry"
        raise not_permitted(f"{where} is in read-only mode")


async def get_mode(call: Call) -> Any:
    subject = _subject(call)
    if subject is not None and subject not in call.state.modes and not call.flag("defaultToGlobal"):
        raise no_subject_mode(subject)
    return {"mode": call.state.mode(subject)}


async def put_mode(call: Call) -> Any:
    subject = _subject(call)
    mode = (call.body(ModeRequest).mode or "").upper()
    if mode not in MODES or (mode == FORWARD and subject is not None):
        raise invalid_mode(mode)
    if mode == IMPORT and call.rights is not None:
        # Who imports chooses ids, which all subjects of a context share.
        raise lacks_cluster("to import schemas")

    async def decide() -> tuple[list[Write], None]:
        records: list[Write] = []
        if mode == IMPORT and call.state.mode(subject) != IMPORT and not call.flag("force"):
            versions = _versions_of(call.state, subject)
            if any(not each.deleted for each in versions):
                where = f"subject {subject}" if subject else "the registry"
                raise not_permitted(f"Cannot import since {where} has schemas; give force=true")
            records = _forgotten(call.state, versions)
        return [*records, (ModeKey(subject), ModeValue(mode))], None

    await call.registry.write(decide)
    return {"mode": mode}


def _versions_of(state: RegistryState, subject: str | None) -> list[Version]:
    """Return the versions of a subject, a context or all, those deleted included."""
    found: list[Version] = []
    for name, _ in state.subjects():
        is_inside = subject is None or name == subject
        if subject is not None and not unqualified(subject):
            is_inside = context_of(name) == context_of(subject)
        if is_inside:
            found += state.versions(name, deleted=True)
    return found


def _forgotten(state: RegistryState, versions: list[Version]) -> list[Write]:
    """Return the records that make place for imports: ids of what was deleted may come again."""
    if not versions:
        return []
    places = {(each.subject, each.version) for each in versions}
    for each in versions:
        for other in state.referrers(each.subject, each.version):
            if (other.subject, other.version) not in places:
                raise reference_exists(each.subject, each.version)
    gone: list[Write] = [(SchemaKey(each.subject, each.version), None) for each in versions]
    return [(NoopKey(), state.highest_ids()), *gone]


async def delete_mode(call: Call) -> Any:
    subject = _subject(call)

    async def decide() -> tuple[list[Write], str]:
        found = call.state.modes.get(subject)
        if found is None:
            raise subject_not_found(subject or "")
        return [(ModeKey(subject), None)], found

    return {"mode": await call.registry.write(decide)}


OPERATIONS = (
    Operation("GET", "/config", get_config),
    Operation("PUT", "/config", put_config, is_write=True),
    Operation("DELETE", "/config", delete_config, is_write=True),
    Operation("GET", "/config/*", get_config),
    Operation("PUT", "/config/*", put_config, is_write=True),
    Operation("DELETE", "/config/*", delete_config, is_write=True),
    Operation("GET", "/mode", get_mode),
    Operation("PUT", "/mode", put_mode, is_write=True),
    Operation("DELETE", "/mode", delete_mode, is_write=True),
    Operation("GET", "/mode/*", get_mode),
    Operation("PUT", "/mode/*", put_mode, is_write=True),
    Operation("DELETE", "/mode/*", delete_mode, is_write=True),
)
