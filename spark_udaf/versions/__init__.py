"""Versions of Spark: the only package that asks which version runs and that replaces what a version lacks.

- `spark_udaf.versions.features` answers whether this PySpark has a feature, and refuses what needs a missing one.
- `spark_udaf.versions.arrow_types` converts between Arrow types and Spark types.
- `spark_udaf.versions.arrow_tables` collects a DataFrame as an Arrow table.
- `spark_udaf.versions.column_functions` makes functions of Columns from functions of Arrow arrays.
- `spark_udaf.versions.sql_udfs` makes the functions that are registered for SQL.
"""
