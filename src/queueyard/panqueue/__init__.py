"""panqueue: an async job-queue library on Redis and Valkey."""
