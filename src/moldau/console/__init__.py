"""The console: a JSON API and a page in the browser for everything that flows through a cluster.

It reaches the cluster over Kafka's protocol only, and the registry over HTTP, so it works for any
Kafka-compatible cluster: as a process of its own, or on the HTTP side of a broker.
"""
