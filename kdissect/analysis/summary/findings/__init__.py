"""Facts -> what an expert would point at: one small file for each rule, listed in rules.py."""
