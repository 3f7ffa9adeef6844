"""The check at the door: batches of topics that take only records of registered schemas."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from moldau.broker.partitions.open_transaction import OpenTransaction
from moldau.broker.partitions.partitions import Refusal
from moldau.http.registry.quarantine import Quarantine
from moldau.http.registry.registry import SchemaRegistry
from moldau.log.config import LogConfig
from moldau.records.batch import BatchError, InvalidRecord, InvalidRecords, NotChecked
from moldau.schemas.door.messages import (
    CheckBatch,
    Checked,
    KnownSchema,
    Table,
    decode_answer,
)
from moldau.schemas.registry.state import MissingReference, guid_of
from moldau.schemas.worker.process import WorkerLost, WorkerProcess
from moldau.topic_partition import TopicPartition

# The first process on a machine compiles the loop over the records, which takes some seconds.
_TIMEOUT_S = 60.0
_NOT_INSTALLED = "to check records against schemas, install moldau[checks] on the broker's machine"


class SchemaCheck:
    """Has a process of its own check each batch, with the schemas that this broker knows.

    The process learns a subject's schemas with the first batch that needs them, and again when they
    have changed. Event loop only.
    """

    def __init__(self, registry: SchemaRegistry, quarantine: Quarantine) -> None:
        self._registry = registry
        self._quarantine = quarantine
        self._worker: WorkerProcess[Checked] = WorkerProcess(
            "moldau.schemas.door", decode_answer, _TIMEOUT_S
        )
        self._is_installed = find_spec("numba") is not None
        # What the process has been told: the ids of each subject.
        self._told: dict[str, tuple[tuple[int, int], ...]] = {}
        self._told_to = 0

    async def close(self) -> None:
        await self._worker.close()

    async def check(
        self,
        at: TopicPartition,
        batch: memoryview | bytearray,
        config: LogConfig,
        transaction: OpenTransaction | None,
    ) -> memoryview | bytearray | BatchError | Refusal:
        """Return what to append of a batch, or why nothing of it is taken, with the index of each
        record and the reason."""
        topic, _ = at
        aside = config.moldau_schema_validation_quarantine
        if not self._is_installed:
            return InvalidRecord(_NOT_INSTALLED)
        key = f"{topic}-key" if config.moldau_key_schema_validation else None
        value = f"{topic}-value" if config.moldau_value_schema_validation else None
        try:
            await self._registry.follower.until_current()
        except TimeoutError:
            return NotChecked("the schemas could not be read in time; send again")
        try:
            answer = await self._ask(batch, key, value, bool(aside))
            if answer.unknown and await self._learned(answer.unknown, key, value):
                answer = await self._ask(batch, key, value, bool(aside))
        except WorkerLost as problem:
            return NotChecked(f"the records could not be checked: {problem}; send again")
        if answer.problem is not None:
            return InvalidRecord(answer.problem)
        if not answer.problems:
            return batch
        if answer.rest is not None:
            # Before the rest is appended, and so before anybody hears that the batch was taken.
            refused = await self._quarantine.write(aside, at, answer.letters, transaction)
            return bytearray(answer.rest) if refused is None else refused
        index, reason = answer.problems[0]
        what = f"record {index} does not match a schema of {topic}: {reason}"
        return InvalidRecords(what, answer.problems)

    async def _learned(self, names: list[int | str], *subjects: str | None) -> bool:
        """Tell whether an id or guid that was not known has become so."""
        follower = self._registry.follower
        for subject in subjects:
            if subject is not None and await follower.until_known(subject, names[0]):
                return True
        return False

    async def _ask(
        self,
        batch: memoryview | bytearray,
        key: str | None,
        value: str | None,
        sets_aside: bool,
    ) -> Checked:
        def request() -> Any:
            if self._told_to != self._worker.lives:
                self._told_to = self._worker.lives
                self._told.clear()
            tables = [
                table
                for subject in (key, value)
                if subject is not None and (table := self._news(subject)) is not None
            ]
            return CheckBatch(bytes(batch), key, value, tables, sets_aside)

        return await self._worker.ask(request)

    def _news(self, subject: str) -> Table | None:
        """Return a subject's schemas if the process knows others, or none."""
        state = self._registry.state
        versions = state.versions(subject)
        ids = tuple((version.version, version.id) for version in versions)
        if self._told.get(subject) == ids:
            return None
        self._told[subject] = ids
        known = {}
        for version in versions:
            try:
                dependencies = state.dependencies(version.schema.references, subject)
            except MissingReference:
                # The process says that the schema cannot be used, and why.
                dependencies = []
            guid = guid_of(version.schema)
            known[version.id] = KnownSchema(version.id, version.schema, dependencies, guid)
        return Table(subject, list(known.values()))
