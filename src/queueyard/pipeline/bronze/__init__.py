"""Bronze: every raw record with its provenance. What cannot be understood goes into quarantine, never away."""
