"""A commit to an Iceberg table that is tried once.

pyiceberg's own transactions try again on the table as it has become, without asking: two drivers
with the same batch would both succeed. Here a snapshot is only accepted right after the one that
was checked. Whoever loses looks at the table again, and decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Transaction
from pyiceberg.table.update import AssertTableUUID

from moldau.spark.errors import log

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


class Commit(Transaction):
    """One transaction on a table as it was loaded: files in and out, and what to remember."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.failure: Exception | None = None

    def change_files(
        self,
        added: Iterable[DataFile],
        removed: Iterable[DataFile] = (),
        summary: Mapping[str, str] | None = None,
    ) -> None:
        """Stage a snapshot with these files in, and those out; there may be neither."""
        update = self.update_snapshot(snapshot_properties=dict(summary or {}))
        gone = list(removed)
        producer = update.overwrite() if gone else update.merge_append()
        for file in added:
            producer.append_data_file(file)
        for file in gone:
            producer.delete_data_file(file)
        producer.commit()

    def is_done_once(self) -> bool:
        """Commit; return False if that did not happen, with the reason in `failure`.

        Where the answer is lost, the table itself is asked. A commit whose fate is not known then
        may still come: it will be refused if anything has been committed in between, and the next
        one after it is refused as well, so the table will be asked again.
        """
        table = self._table
        known = AssertTableUUID(uuid=table.metadata.table_uuid)
        try:
            table._do_commit(updates=self._updates, requirements=(*self._requirements, known))
        except Exception as problem:
            self.failure = problem
            try:
                if self._is_in_table():
                    # A request that was sent twice: the second was refused because of the first.
                    return True
            except Exception as silence:
                # Each kind of catalog has errors of its own. Whoever opens the table next says
                # that it cannot be reached.
                log.warning(
                    "%s: a commit may have failed, but the catalog did not say: %s",
                    ".".join(table.name()),
                    silence,
                )
                return False
            if isinstance(problem, (CommitFailedException, ValidationException)):
                for producer in self._snapshot_producers:
                    producer._clean_all_uncommitted()
            else:
                log.warning("%s: a commit failed: %s", ".".join(table.name()), problem)
            return False
        return True

    def _is_in_table(self) -> bool:
        self._table.refresh()
        ids = [producer.snapshot_id for producer in self._snapshot_producers]
        return bool(ids) and all(self._table.snapshot_by_id(each) is not None for each in ids)
