"""The constructor language of chapter 2: programs as nested modules."""
