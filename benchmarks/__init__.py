"""softly against its peers and against idiomatic torch, as ratios in one run: `make bench`."""
