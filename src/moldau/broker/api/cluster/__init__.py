"""APIs about the cluster: its brokers, leaders, replicas, and what they speak."""
