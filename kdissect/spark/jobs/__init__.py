"""Reports for operators: functions from the data frames of tables to a data frame. They work in a notebook,
over Spark Connect, and for ``kdissect spark report``.

``by`` names the columns to group by. ``window`` is a duration (``10s``, ``1m``, ``1h``): rows are also
grouped by time window, and ``start`` is where the window begins, a multiple of the duration since 1970. Times
are UTC.
"""
