"""Errors of the registry, with the codes of Confluent's."""

from __future__ import annotations

INVALID_SCHEMA = 42201


class RegistryError(Exception):
    """A refusal: an HTTP status, a code, and what happened."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(what: object = "") -> RegistryError:
    return RegistryError(404, 40403, f"Schema {what} not found".replace("  ", " "))


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404, 40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )  # fmt: skip


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        404, 40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )  # fmt: skip


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        404, 40407,
        f"Subject '{subject}' Version {version} was not deleted first before being "
        "permanently deleted",
    )  # fmt: skip


def other_site() -> RegistryError:
    return RegistryError(403, 403, "pages of other sites may not send this request")


def lacks_cluster(what: str) -> RegistryError:
    return RegistryError(403, 403, f"{what} requires Alter on the cluster")


def hidden_reference(subject: str) -> RegistryError:
    return RegistryError(
        403, 403, f"the reference to subject {subject!r} requires Describe on its topic"
    )


def foreign_alias(subject: str) -> RegistryError:
    return RegistryError(
        403, 403, f"an alias of subject {subject[:100]!r} requires AlterConfigs on its topic"
    )


def no_subject_level(subject: str) -> RegistryError:
    return RegistryError(
        404, 40408,
        f"Subject '{subject}' does not have subject-level compatibility configured",
    )  # fmt: skip


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(
        404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
    )


def association_not_found(resource: str) -> RegistryError:
    return RegistryError(404, 40410, f"Association for '{resource}' not found.")


def association_exists(kind: str, resource: str) -> RegistryError:
    return RegistryError(
        409, 40903, f"An association of type '{kind}' already exists for resource '{resource}'"
    )


def association_of_subject(subject: str) -> RegistryError:
    return RegistryError(409, 40904, f"An association already exists for subject '{subject}'")


def no_active_version(subject: str) -> RegistryError:
    return RegistryError(
        409, 40907, f"No active (non-deleted) version exists for subject '{subject}'"
    )


def association_frozen(kind: str, subject: str) -> RegistryError:
    return RegistryError(
        409, 40908, f"The association of type '{kind}' is frozen for subject '{subject}'"
    )


def incompatible(message: str) -> RegistryError:
    return RegistryError(409, 409, message)


def invalid_schema(reason: object) -> RegistryError:
    return RegistryError(422, INVALID_SCHEMA, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        422, 42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )  # fmt: skip


def invalid_level(level: object) -> RegistryError:
    return RegistryError(
        422, 42203,
        f"Invalid compatibility level {level!r}. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )  # fmt: skip


def invalid_mode(mode: object) -> RegistryError:
    return RegistryError(
        422, 42204,
        f"Invalid mode {mode!r}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT "
        "and FORWARD",
    )  # fmt: skip


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(422, 42205, reason)


def reference_exists(subject: str, version: object) -> RegistryError:
    return RegistryError(
        422, 42206,
        f"One or more references exist to the schema {{subject={subject},version={version}}}.",
    )  # fmt: skip


def invalid_subject(subject: str, reason: str) -> RegistryError:
    return RegistryError(
        422, 42208, f"The specified subject {subject[:100]!r} is not valid: {reason}"
    )


def schema_too_large(limit: int) -> RegistryError:
    return RegistryError(422, 42209, f"Invalid schema: it is larger than {limit} bytes")


def invalid_rules(reason: str) -> RegistryError:
    return RegistryError(422, 42210, f"Invalid rule set: {reason}")


def invalid_association(reason: str) -> RegistryError:
    return RegistryError(422, 42212, reason)


def bad_request(reason: str) -> RegistryError:
    return RegistryError(400, 400, reason)


def too_large(limit: int) -> RegistryError:
    return RegistryError(
        413, 413, f"the body has more than {limit} bytes besides the text of the schema"
    )


def unprocessable(reason: str) -> RegistryError:
    return RegistryError(422, 422, reason)


def store_failed(reason: str) -> RegistryError:
    return RegistryError(500, 50001, f"Error in the backend data store: {reason}")


def no_ids_left(context: str) -> RegistryError:
    return store_failed(f"context {context!r} has no ids left: the last one has been assigned")


def timed_out(reason: str) -> RegistryError:
    return RegistryError(500, 50002, f"Operation timed out: {reason}")


def forwarding_failed(reason: str) -> RegistryError:
    return RegistryError(500, 50003, f"Error while forwarding the request to the leader: {reason}")


def no_leader() -> RegistryError:
    return RegistryError(500, 50004, "Leader not known.")
