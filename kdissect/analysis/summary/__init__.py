"""Exchanges -> who talked to whom about what, how fast, with which errors. Start with summarizer.py."""
