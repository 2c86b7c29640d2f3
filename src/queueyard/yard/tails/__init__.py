"""The events of a place as they come, one file per kind of medium.

A tail remembers how far it has read, and each `read` gives what came since. It writes nothing. A file that was put in
the place of another, and a server that was away, are read on or read anew; whoever merges drops what comes twice.
"""
