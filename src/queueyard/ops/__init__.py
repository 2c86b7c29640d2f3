"""ops: resumable pushes of file operations in durable batches, and an idempotent server."""
