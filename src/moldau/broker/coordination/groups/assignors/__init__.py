"""Server-side assignors: who of a group reads which partitions, as pure functions over values."""
