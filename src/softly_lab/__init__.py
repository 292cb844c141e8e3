"""Experiments, data sets and the command line of softly."""
