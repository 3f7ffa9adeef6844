"""Ask DuckDB about the table of orders: python read.py [WAREHOUSE]"""

from __future__ import annotations

import sys
from pathlib import Path

from pyiceberg.catalog import load_catalog

QUESTION = """
    SELECT date_trunc('day', time AT TIME ZONE 'UTC')::date AS day, item,
           sum(quantity)::bigint AS quantity, sum(quantity * price) AS revenue
    FROM orders GROUP BY ALL ORDER BY ALL
"""


def main() -> None:
    here = Path(__file__).resolve().parent / "data" / "lake"
    warehouse = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{warehouse / 'catalog.db'}")
    orders = catalog.load_table("shop.orders").scan().to_duckdb("orders")
    for day, item, quantity, revenue in orders.execute(QUESTION).fetchall():
        price = "no price yet" if revenue is None else f"{revenue:.2f}"
        sys.stdout.write(f"{day}  {item:10} {quantity:>14}  {price}\n")


if __name__ == "__main__":
    main()
