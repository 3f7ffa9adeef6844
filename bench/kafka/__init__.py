"""Apache Kafka beside Moldau: fetched, started, measured with the same load.

`python -m bench.kafka` (`make bench-kafka`) writes bench/RESULTS.md. The conformance suite starts
its Kafka from here too.
"""
