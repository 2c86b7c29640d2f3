"""The dashboard: one web page over the live state of a yard and over its gold tables."""
