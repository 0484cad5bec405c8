"""The one error of this program: a message that says what failed and what to do."""


class Refused(Exception):
    """The image cannot be built, or is not what it must be."""
