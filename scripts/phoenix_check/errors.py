"""The one error of this package."""


class Failed(Exception):
    """The run cannot go on, or proves nothing; the text says why and what to do."""
