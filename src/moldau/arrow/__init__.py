"""Record batches to Arrow columns and back, in compiled loops. Needs numba and pyarrow."""
