"""Queueyard: work queues for people and agents.

This module holds the version and nothing else, because every console script imports it first.
"""

__version__ = "0.1.0"
