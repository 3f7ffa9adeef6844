"""Work on the side: retention, compaction, checkpoints, and a look at the event loop."""
