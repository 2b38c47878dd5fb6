"""Test the installation of tiltframe in this environment: import every module, and call the help and completion of
every command.

An import may only fail because a package of an extra is not installed. It must raise an ImportError that says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NEED = {
    "tiltframe.cli": "click",
    "tiltframe.serve": "click starlette uvicorn promql_parser",
    "tiltframe.capacity": "click rich",
    "tiltframe.store.backends.delta": "deltalake",
    "spark_udaf": "pyspark",
    "spark_udaf.demo": "click",
    "spark_udaf.stream_command": "click",
}


def modules() -> list[str]:
    """List the modules of the packages, by their files."""
    names = []
    for package in ("aggr", "windows", "tiltframe", "spark_udaf"):
        spec = importlib.util.find_spec(package)
        assert spec is not None, package
        (folder,) = map(Path, spec.submodule_search_locations or [])
        files = sorted(file.relative_to(folder.parent).with_suffix("") for file in folder.rglob("*.py"))
        names += [".".join(file.parts).removesuffix(".__init__") for file in files if file.name != "__main__"]
    return names


def import_everything() -> None:
    """Import every module; one fails only where the package that its place needs is not here."""
    for name in modules():
        missing = [need for place in NEED if f"{name}.".startswith(f"{place}.") for need in NEED[place].split()]
        missing = [package for package in missing if importlib.util.find_spec(package) is None]
        try:
            importlib.import_module(name)
        except ImportError as error:
            if error.name not in missing:
                raise


def run(*words: str, **variables: str) -> tuple[int, str, str]:
    """Run the command line."""
    command = [str(Path(sys.executable).parent / "tiltframe"), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables, check=False)
    return done.returncode, done.stdout, done.stderr


def help_in_a_fork(command: str) -> tuple[int, str]:
    """Ask a command for help in a fork of this process, without the start of an interpreter; return status and errors.

    `import_everything` has imported all modules, and `run` has started the command line by itself.
    """
    from tiltframe.command import main

    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = ["tiltframe", command, "--help"]
            status = 1
            try:
                main()
                status = 0
            except SystemExit as end:
                status = end.code or 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(ended), errors.read().decode()


def ask_every_command() -> None:
    """Ask every command for help, and complete commands; without click one sentence says why not."""
    status, out, err = run("--help")
    if importlib.util.find_spec("click") is None:
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert "pip install 'tiltframe[cli]'" in err, err
        return
    assert (status, err) == (0, ""), err
    commands = re.findall(r"^  ([a-z]+) ", out.partition("Commands:")[2], flags=re.M)
    assert len(commands) > 10, out
    for command in commands:
        status, err = help_in_a_fork(command)
        assert (status, err) == (0, ""), f"{command} --help: {err}"
    completion = {"_TILTFRAME_COMPLETE": "bash_complete", "COMP_WORDS": "tiltframe ", "COMP_CWORD": "1"}
    status, out, err = run(**completion)
    assert (status, err) == (0, ""), err
    assert {f"plain,{command}" for command in commands} <= set(out.split()), out


if __name__ == "__main__":
    import_everything()
    ask_every_command()
