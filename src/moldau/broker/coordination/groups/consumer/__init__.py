"""Consumer groups (KIP-848): the coordinator assigns, and members follow by their heartbeats."""
