"""Where records come from, each as a data source of Spark. All of them give rows of `schemas.RECORD`."""
