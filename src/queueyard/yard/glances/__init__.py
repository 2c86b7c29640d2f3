"""One glance per system, each through the same read functions as that system's own status command.

A glance holds no lock, writes nothing and snapshots nothing. It raises QueueyardError where a place cannot be read.
"""
