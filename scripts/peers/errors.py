"""The one error of this package."""


class Failed(Exception):
    """The run cannot go on; the text says why and what to do."""
