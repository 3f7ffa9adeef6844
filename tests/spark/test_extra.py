"""The extra: where it is missing, a test says that those of this folder are left out."""

from __future__ import annotations

import pytest

from tests.spark.conftest import MISSING


@pytest.mark.skipif(bool(MISSING), reason=f"no tests of Spark without {', '.join(MISSING)}")
def test_the_extra_for_spark_is_installed() -> None:
    assert not MISSING
