"""The cluster: the state that brokers agree on, the stores behind it, and the controller."""
