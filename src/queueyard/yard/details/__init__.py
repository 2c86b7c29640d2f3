"""What one place holds, part by part, for people who look closer than one glance.

One file per system, each through that system's own read functions. Looking holds no lock, writes nothing and snapshots
nothing; every part is bounded and says how much there is in all. QueueyardError where a place cannot be read.
"""
