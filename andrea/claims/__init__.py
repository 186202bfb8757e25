"""Sentences that claim something, tried: real runs, seeds, intervals, a verdict. claim.py is the noun; one file here is one claim."""
