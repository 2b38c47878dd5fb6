"""``python -m tiltframe.cli`` is the command line as well."""

from tiltframe.cli.app import main

if __name__ == "__main__":
    main()
