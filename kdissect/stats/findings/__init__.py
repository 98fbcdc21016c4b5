"""Facts -> likely problems: one rule for each, listed in rules.py."""
