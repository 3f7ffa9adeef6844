"""Transactions: the coordinator of transactional ids and its records in `__transaction_state`, the
markers that it sends to partition leaders, and the verification of transactional writes. What a
transaction means in a log is not here but in `moldau.log` and `moldau.broker.partitions`."""
