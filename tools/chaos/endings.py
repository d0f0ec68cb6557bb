"""Ways for a question to end that are neither an answer nor wrong."""


class Left(Exception):
    """We went, as we meant to."""


class Refused(Exception):
    """The server would not, and said so in good form."""
