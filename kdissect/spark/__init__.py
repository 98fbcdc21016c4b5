"""Apache Spark: kdissect as a data source, captures dissected on a cluster, reports as jobs. No other package
imports pyspark.
"""
