"""The load processes of these measurements, as in `moldau.bench.load`."""
