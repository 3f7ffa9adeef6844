"""`format("moldau")`: the data source that Spark finds, and its readers and writers.

Imported in every Python process that Spark starts: what needs time to load waits in functions.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from moldau.spark.errors import OptionError
from moldau.spark.names import spark_schema
from moldau.spark.runtime.connections import quieten_planner
from moldau.spark.source.options import SourceOptions

quieten_planner()


class MoldauSource(DataSource):
    """Topics of any Kafka-protocol broker as tables and streams, to read and to write."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> str:
        return spark_schema(SourceOptions.parse(self.options, strict=False).read.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from moldau.spark.source.batch import BatchReader

        return BatchReader(self._source_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from moldau.spark.source.stream import StreamReader

        return StreamReader(self._source_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.sink.options import SinkOptions
        from moldau.spark.sink.sink import BatchWriter

        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        return BatchWriter(SinkOptions.parse(self.options, schema, strict=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from moldau.spark.sink.options import SinkOptions
        from moldau.spark.sink.sink import StreamWriter

        return StreamWriter(SinkOptions.parse(self.options, schema, strict=False))

    def _source_options(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(self.options, strict=False)
        if tuple(schema.fieldNames()) != options.read.columns:
            raise OptionError(
                "the schema of this source is fixed; choose columns with the option 'columns'"
            )
        return options
