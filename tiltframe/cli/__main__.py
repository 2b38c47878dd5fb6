"""Run the command line as a module: ``python -m tiltframe.cli``."""

from tiltframe.cli.app import main

if __name__ == "__main__":
    main()
