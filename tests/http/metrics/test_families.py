"""Families of metrics: their text, and quantiles of their histograms."""

from __future__ import annotations

from moldau.broker.metrics import Histogram
from moldau.http.metrics.families import Families, labels, quantile


def test_quantiles_lie_within_the_bucket_that_holds_them() -> None:
    histogram = Histogram()
    assert quantile(histogram.buckets, 0.99) == 0.0
    for _ in range(99):
        histogram.add(0.001)
    histogram.add(2.0)
    assert 0.000_512 <= quantile(histogram.buckets, 0.5) <= 0.001_024
    assert 1.048 <= quantile(histogram.buckets, 0.999) <= 2.098
    histogram.add(1e6)
    assert histogram.buckets[-1] == 1
    assert histogram.count == 101


def test_labels_are_escaped_and_an_empty_family_is_not_shown() -> None:
    families = Families()
    families.family("nothing", "gauge", "Nothing.")
    families.gauge("one", "One.", 1, labels(group='a"b\\c\nd'))
    shown = "".join(families.render(is_open=False))
    assert shown == '# HELP one One.\n# TYPE one gauge\none{group="a\\"b\\\\c\\nd"} 1\n'
