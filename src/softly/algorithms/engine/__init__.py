"""What runs relaxed programs: values, paths, the probability of each, and where they join."""
