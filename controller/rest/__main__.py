"""`python -m controller.rest`: the API alone."""

import sys

from controller.rest.server import main

if __name__ == "__main__":
    sys.exit(main())
