"""Producer ids: the node that counts those given out in the whole cluster."""

from __future__ import annotations

import logging

from moldau.cluster.store import StoreError
from moldau.cluster.zookeeper.sessions.operations import NoNode, Refused, SetData, Unanswered
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.znodes import DamagedNode, decode_number

logger = logging.getLogger("moldau.cluster.zookeeper")

# All brokers may want some at once.
_ATTEMPTS = 50


async def reserve(session: Session, path: str, count: int) -> range:
    """Take producer ids that nobody else ever gets; StoreError if that does not succeed."""
    for _ in range(_ATTEMPTS):
        try:
            data, stat = await session.get(path)
            first = decode_number(path, data)
            written = b"%d" % (first + count)
            await session.multi([SetData(path, written, stat.version)])
            return range(first, first + count)
        except (Refused, Unanswered) as error:
            # Another broker took these, or perhaps we did: then they are never used.
            logger.debug("trying to reserve other producer ids: %s", error)
        except (DamagedNode, NoNode) as error:
            raise StoreError(f"could not reserve producer ids: {error}") from error
    raise StoreError(
        f"could not reserve producer ids: {_ATTEMPTS} attempts lost a race with other brokers, or"
        " were not answered"
    )
