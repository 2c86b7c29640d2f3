"""The module name that RunForge Desktop starts; forwards to `queueyard.runforge`."""
