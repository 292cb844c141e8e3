"""Idiomatic torch, frozen: what someone without softly would write. The library never uses it."""
