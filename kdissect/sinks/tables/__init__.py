"""The tables of an export: their columns, and how rows come from exchanges and connections."""
