"""runforge: an execution queue for experiment runs and sweeps, fair by group."""
