"""The exception tree.

    NeuralDbgError
    |-- UsageError (ValueError)       the caller asked for something that cannot be done
    |-- RunFileError (OSError)        a run file is missing, damaged, foreign or too new
    |-- MissingExtraError (ImportError)  an optional dependency is not installed
    ObservationWarning (UserWarning)  something could not be observed; training goes on

Every message says what happened, where, the actual value, and what to do next.
"""

from __future__ import annotations


class NeuralDbgError(Exception):
    """Root of every error that NeuralDBG raises on purpose."""


class UsageError(NeuralDbgError, ValueError):
    """The call or command cannot be carried out as given; the message names the way out."""


class RunFileError(NeuralDbgError, OSError):
    """A run file cannot be read.

    Causes: the path is wrong, the file was cut short, it was written by a newer
    NeuralDBG, or it is not a run file at all. The message says which.
    """


class MissingExtraError(NeuralDbgError, ImportError):
    """An optional dependency is missing; the message holds the exact install command."""


class ObservationWarning(UserWarning):
    """Something could not be observed. Training is not affected; the report lists the gap."""
