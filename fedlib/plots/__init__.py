"""One style for every figure, and the standard charts of the book."""

from .charts import *  # noqa: F403
