"""Metrics over HTTP: what a broker counts, under the names that boards for Kafka know.

One module per subject; each adds families to those of a scrape. Nothing here is on the way of a
request to the broker.
"""
