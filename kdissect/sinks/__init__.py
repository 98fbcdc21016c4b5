"""Exchanges -> outputs. A sink takes exchanges and makes one kind of output; its plan is what the native core
does for it.

    lines.py    lines of text
    rows.py     rows of JSON and CSV
    columns.py  rows of tables, column by column
    records.py  the records in exchanges
    tallies.py  exchanges that are alike, counted together

A writer (text/, tables/) says what an exchange looks like, and a counter (stats/) what is counted. The sink
around it says what the core may do, and nothing else decides that.
"""
