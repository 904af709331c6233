"""stub"""


class Forbidden(Exception):
    pass
