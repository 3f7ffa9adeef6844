"""Administration: topics, partitions, settings, groups."""
