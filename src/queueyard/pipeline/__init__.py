"""The pipeline: the history of the five systems as tables, on Spark. Imported by nothing else at start-up."""
