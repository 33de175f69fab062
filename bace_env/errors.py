"""The exceptions of the project; every one of them is meant to be read by a user."""


class BaceError(Exception):
    """Base of all errors that this project raises on purpose."""


class ConfigError(BaceError):
    """A scenario, an override, a name or an option is wrong; the message names it and the rule."""


class ResultExistsError(ConfigError):
    """A result would be written over an existing one."""


class InvalidPlacementError(BaceError):
    """A policy asked for a placement that breaks a rule; the message gives the rule and numbers."""


class DeadlockError(BaceError):
    """A policy waits although nothing can happen any more; the message says why, job by job."""


class PriceEndError(BaceError):
    """Time passes the end of a price series that must not be continued (`beyond = "error"`)."""


class TraceError(BaceError):
    """A trace contradicts the cost model; raised by the independent checker."""
