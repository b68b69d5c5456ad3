"""Groups of commands with a default command: `fuga move VM`, `fuga roll`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Context


class ImpliedCommand(TyperGroup):
    """A group whose default command runs if the first word is no command of the group."""

    implied: ClassVar[str]  #: the default command

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Put the command's name first: the typed one, even behind options, or the default."""
        if args and args[0] not in ctx.help_option_names:
            at = self._first_word(args)
            if at is not None and args[at] in self.commands:
                args = [args[at], *args[:at], *args[at + 1 :]]
            else:
                args = [self.implied, *args]
        return super().parse_args(ctx, args)

    def _first_word(self, args: list[str]) -> int | None:
        """Return the index of the first word that is neither an option nor an option's value."""
        takes_value = {
            name
            for each in self.commands[self.implied].params
            if each.param_type_name == "option" and not getattr(each, "is_flag", False)
            for name in each.opts
        }
        at = 0
        while at < len(args):
            if not args[at].startswith("-"):
                return at
            at += 2 if args[at] in takes_value else 1
        return None
