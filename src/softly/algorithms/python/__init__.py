"""From a Python function to a relaxed one: its syntax is lowered to calls of the engine."""
