"""Frame stores in Spark: written from tasks, read as a data source."""
