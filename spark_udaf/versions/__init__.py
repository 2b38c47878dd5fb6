"""Versions of Spark: the only package that checks the version of PySpark, and that replaces features missing from older
versions.

- `spark_udaf.versions.features` detects whether this PySpark has a feature, and raises an error for missing ones.
- `spark_udaf.versions.arrow_types` converts between Arrow types and Spark types.
- `spark_udaf.versions.arrow_tables` collects a DataFrame as an Arrow table.
- `spark_udaf.versions.column_functions` makes functions of Columns from functions of Arrow arrays.
- `spark_udaf.versions.sql_udfs` makes the functions that are registered for SQL.
- `spark_udaf.versions.registration` registers many of them at once.
- `spark_udaf.versions.data_sources` registers a data source without a search for others.
"""
