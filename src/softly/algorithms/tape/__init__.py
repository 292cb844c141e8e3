"""Straight-line programs, recorded once and run as one kernel."""
