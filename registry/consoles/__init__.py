"""Serial consoles: sessions of callers, and reads of console logs."""

from registry.consoles.holds import ConsoleClaim, ConsoleWork
from registry.consoles.reads import ConsoleAnswer
from registry.consoles.session_rows import ConsoleSession
from registry.consoles.sessions import MAX_TYPED_BYTES, ConsoleOutput

__all__ = [
    "MAX_TYPED_BYTES",
    "ConsoleAnswer",
    "ConsoleClaim",
    "ConsoleOutput",
    "ConsoleSession",
    "ConsoleWork",
]
