"""Frame stores in Spark: tasks write states into them, and Spark reads them as a data source."""
