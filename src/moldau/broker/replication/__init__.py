"""Replicas of partitions: followers copy what leaders have, leaders know who has kept up."""
