"""The same requests and clients against Apache Kafka and Moldau, and every difference in a list.

`python -m conformance` (`make conformance`) starts both, runs every case of `conformance.cases` on
each in every version that both offer, compares the answers field by field, and fails if there is a
difference that `conformance.deliberate` does not explain.
"""
