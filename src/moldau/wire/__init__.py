"""The Kafka protocol without I/O: frames, headers, versions, codecs, error codes."""
