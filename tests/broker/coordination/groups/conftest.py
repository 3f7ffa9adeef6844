from __future__ import annotations

import pytest

from tests.broker.asking import Asker
from tests.broker.coordination.groups.asking import Groups


@pytest.fixture
def groups(asker: Asker) -> Groups:
    """Group requests to the broker that the whole session shares."""
    return Groups(asker)
