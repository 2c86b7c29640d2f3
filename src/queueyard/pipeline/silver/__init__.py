"""Silver: one vocabulary of events, and the latest state of everything that they speak of."""
