"""Support for several versions of Spark. Only this package checks the version of PySpark and replaces missing features.

- `spark_udaf.versions.features` detects which features this PySpark has, and raises errors for missing features.
- `spark_udaf.versions.arrow_types` converts between Arrow types and Spark types.
- `spark_udaf.versions.arrow_tables` collects a DataFrame as an Arrow table.
- `spark_udaf.versions.column_functions` converts functions of Arrow arrays to functions of Columns.
- `spark_udaf.versions.sql_udfs` creates the functions that are registered for SQL.
- `spark_udaf.versions.registration` registers many functions for SQL at once.
- `spark_udaf.versions.data_sources` registers a data source without a search for others.
- `spark_udaf.versions.worker_allocator` sets how long Arrow keeps freed memory in Python workers.
"""
