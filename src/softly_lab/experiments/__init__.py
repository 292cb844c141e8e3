"""One file per experiment: a frozen config, and `run(config)`, which returns what was measured."""
