"""Sessions: how a broker talks to ZooKeeper; nothing here knows what the nodes mean."""
