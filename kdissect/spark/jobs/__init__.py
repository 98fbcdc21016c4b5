"""What operators ask, as plain functions from data frames to a data frame: each works in a notebook, over
Spark Connect, and behind ``kdissect spark report``.

``by`` names columns that rows are made for, ``window`` is a length of time (``10s``, ``1m``, ``1h``): then
there is a row for each piece of time, which begins at ``start``, a multiple of the length since 1970. Times
are UTC.
"""
