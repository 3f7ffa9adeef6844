"""Coordinators: what each keeps is a shard per partition of an internal topic, which it reads back
when it comes to lead the partition and writes to through a journal. What is in the records is up to
the coordinator: of groups, of transactions, or of the states of share groups."""
