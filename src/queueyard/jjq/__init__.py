"""jjq: a local merge queue for the jj version control system."""
