"""Numbers that the thesis published, a file for each experiment, with the table that they stand in."""
