"""What a check says of a mistake: where it is, what is wrong, and what to do."""


class Refused(Exception):
    """Something in deploy/ is wrong."""

    def __init__(self, place, problem, remedy):
        super().__init__(f"{place}: {problem}\n  help: {remedy}")
        self.place, self.problem, self.remedy = place, problem, remedy


def refuse_unless(holds, place, problem, remedy):
    if not holds:
        raise Refused(place, problem, remedy)


def name_of(document):
    return f"{document.get('kind')}/{document.get('metadata', {}).get('name')}"
