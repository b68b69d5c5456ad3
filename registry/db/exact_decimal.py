"""Decimal numbers that both databases store exactly."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import Dialect, Numeric, String
from sqlalchemy.types import TypeDecorator, TypeEngine


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal number; text on SQLite, whose numbers with a fraction are floats."""

    impl = Numeric
    cache_ok = True

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(precision, scale)
        self._width = precision + 2  # with a sign and a point

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the column in a database."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(self._width))
        return super().load_dialect_impl(dialect)

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        """Return a number as the database stores it."""
        return format(value, "f") if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Decimal | None:
        """Return a stored number without the zeros at its end."""
        return None if value is None else plain_decimal(Decimal(value))


def plain_decimal(value: Decimal) -> Decimal:
    """Return a number without zeros at the end of its fraction, which prints without exponent."""
    text = format(value, "f")
    return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
