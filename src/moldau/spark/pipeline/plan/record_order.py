"""The order of a table's rows, from Spark's plan: which of two with the same keys is newer.

Rows that are each made of one record have the record's order. SQL loses it, for nobody selects it;
so the plan is changed to carry the column along, wherever rows go through unmerged: projections,
filters, `LATERAL VIEW`, joins with tables that do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moldau.spark.names import RECORD_ORDER
from moldau.spark.pipeline.plan.analysis import source_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Operators whose rows are each made of one row below; of a join, the side with the records.
_PASSING = frozenset(
    ("Project", "Filter", "EventTimeWatermark", "CollectMetrics", "Generate", "ResolvedHint")
)
# Names for what is below, without use in a plan that is analysed.
_NAMING = frozenset(("SubqueryAlias", "View"))
# By these Spark knows the columns of windows.
_WINDOW_MARKS = ("spark.timeWindow", "spark.sessionWindow")


def has_record_order(frame: DataFrame) -> bool:
    """Return whether each row is made of one record, so that `with_record_order` works."""
    *_, last = _path(frame)
    return source_of(last) is not None


def has_batch_order(frame: DataFrame, keys: Sequence[str]) -> bool:
    """Return whether rows are totals, and so those of a later batch are newer.

    Not if the windows of a group share its keys: a batch may have several of them. Other columns of
    `GROUP BY` may follow from the keys; if they do not, the batch that shows it is refused.
    """
    path = _path(frame)
    if _name(path[-1]) != "Aggregate":
        return False
    used = {_id(column) for column in _items(path[0].output()) if column.name() in keys}
    for node in path:
        made = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(_name(node))
        for column in _items(getattr(node, made)()) if made else ():
            if _id(column) in used:
                used.update(_id(each) for each in _items(column.references().toSeq()))
    windows = filter(_is_window, _items(path[-1].groupingExpressions()))
    return all(_id(window) in used for window in windows)


def with_record_order(frame: DataFrame) -> DataFrame:
    """Return the frame with RECORD_ORDER besides, which its source has to have under
    what it shows."""
    from pyspark.sql import DataFrame as Frame

    jvm: Any = frame.sparkSession.sparkContext._jvm
    spark: Any = frame.sparkSession
    carried: Any = None
    below: Any = None
    for node in reversed(_path(frame)):
        if _order_of(node) is not None:
            carried = node
        elif carried is not None:
            carried = _carrying(node, below, carried, jvm)
        below = node
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, carried)
    return Frame(dataset, frame.sparkSession)


def _path(frame: DataFrame) -> list[Any]:
    """Return the operators that a row has passed, from the last down to the first that made it."""
    jvm: Any = frame.sparkSession.sparkContext._jvm
    node = _inline_ctes(jvm).apply(frame._jdf.queryExecution().analyzed())
    path = [node]
    while True:
        children = _children(node)
        if _name(node) == "Join":
            children = [child for child in children if _reads(child)]
        elif _name(node) not in _PASSING | _NAMING:
            return path
        if len(children) != 1:
            return path
        (node,) = children
        path.append(node)


def _inline_ctes(jvm: Any) -> Any:
    """Spark's rule that puts each `WITH` where it is used; switches of later versions are off."""
    rule = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE
    (constructor,) = jvm.java.lang.Class.forName(rule._fqn).getConstructors()
    return rule(True, *[False] * (constructor.getParameterCount() - 1))


def _carrying(node: Any, below: Any, carried: Any, jvm: Any) -> Any:
    """Return the operator over a child that has the order now."""
    if _name(node) in _NAMING:
        return carried
    if _name(node) == "Project":
        columns = node.projectList().appended(_order_of(carried))
        return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, carried)
    children = [carried if child.equals(below) else child for child in _children(node)]
    return node.withNewChildren(jvm.org.apache.spark.api.python.PythonUtils.toSeq(children))


def _order_of(node: Any) -> Any:
    """Return the column among the output of an operator, if it is there."""
    return next((each for each in _items(node.output()) if each.name() == RECORD_ORDER), None)


def _reads(node: Any) -> bool:
    return source_of(node) is not None or any(map(_reads, _children(node)))


def _children(node: Any) -> list[Any]:
    return _items(node.children())


def _is_window(column: Any) -> bool:
    is_column = _name(column) == "AttributeReference"
    return is_column and any(map(column.metadata().contains, _WINDOW_MARKS))


def _id(column: Any) -> int:
    return int(column.exprId().id())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())
