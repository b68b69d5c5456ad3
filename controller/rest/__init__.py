"""The REST API of the control centre."""

from controller.rest.app import create_app
from controller.rest.problems.errors import ListenError
from controller.rest.server import main, serve

__all__ = ["ListenError", "create_app", "main", "serve"]
