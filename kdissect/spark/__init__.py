"""Apache Spark: kdissect as a data source, captures dissected on a cluster, reports as jobs. pyspark is
imported here and nowhere else.
"""
