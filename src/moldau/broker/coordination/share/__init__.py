"""The coordinator of share-group state: what groups have worked off, in `__share_group_state`."""
