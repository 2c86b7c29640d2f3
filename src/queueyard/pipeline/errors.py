"""What the pipeline may refuse, each with the next command to type.

PipelineError
|-- SparkMissing      pyspark or deltalake is not installed
|-- JavaMissing       no Java 17 or newer on this machine
|-- SparkSilent       the Spark that was asked for does not start or does not answer
|-- SourceFailed      a place cannot be read
|-- TableTooNew       a table was written by a newer Queueyard
|-- TablesDisagree    the log of a table is lost
|-- Unbalanced        rows were read that are neither in bronze nor in quarantine
`-- BadQuery          a question that Spark does not understand
"""

from __future__ import annotations

from queueyard.kernel.errors import QueueyardError


class PipelineError(QueueyardError):
    """Anything that this package refuses."""


class SparkMissing(PipelineError):
    """pyspark or deltalake is not installed."""


class JavaMissing(PipelineError):
    """There is no Java that Spark can run on."""


class SparkSilent(PipelineError):
    """The Spark that was asked for does not start or does not answer."""


class CannotPrepare(PipelineError):
    """Nothing can be kept for later starts of Spark."""


class SourceFailed(PipelineError):
    """A place is missing, unreadable or says something that makes no sense."""


class TableTooNew(PipelineError):
    """A table has a layout that this version does not know."""


class TablesDisagree(PipelineError):
    """A table lacks batches that others have; going on would lose rows without a word."""


class Unbalanced(PipelineError):
    """A batch lost or gained rows on its way; nothing of it is committed."""


class BadQuery(PipelineError):
    """Spark could not understand a question."""
