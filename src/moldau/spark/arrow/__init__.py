"""Record batches to Arrow columns, in compiled loops."""
