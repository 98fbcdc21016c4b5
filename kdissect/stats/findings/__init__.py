"""Facts -> what an expert would point at: a rule for each, listed in rules.py."""
